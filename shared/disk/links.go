package disk

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// CheckHardLinks says why a file in a folder cannot get a second name that is on the disk
// for good; nil if it can. It writes into the folder and cleans up. The errors are those of
// the file system, and errors.ErrUnsupported where no folder can be fsynced.
func CheckHardLinks(dir string) (err error) {
	if runtime.GOOS == "windows" {
		return fmt.Errorf("fsync of a folder: %w", errors.ErrUnsupported)
	}
	file, err := os.CreateTemp(dir, ".links-*")
	if err != nil {
		return err
	}
	second := file.Name() + ".second"
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	if err := errors.Join(file.Close(), os.Link(file.Name(), second)); err != nil {
		return err
	}
	return errors.Join(SyncDir(dir), os.Remove(second))
}
