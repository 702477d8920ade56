package disk

import (
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// FileSystem returns the type of the file system that a folder is on, such as
// "ext4" ("" if that cannot be found out), and whether a power cut can leave a file
// that replaced another by rename without its content: false if the content is known
// to be on the disk before the name is.
func FileSystem(dir string) (kind string, tears bool) {
	path, err := filepath.Abs(dir)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", true
	}
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(path))
	if err != nil {
		return "", true
	}
	var on mountinfo.Info
	for _, m := range mounts {
		if len(m.Mountpoint) >= len(on.Mountpoint) { // of two at the same place the later one is seen
			on = *m
		}
	}
	return on.FSType, tearsRenames(on.FSType, on.VFSOptions)
}

// tearsRenames says it of a type and its mount options. Only ext4 is known to have
// the content there first, unless it was mounted with noauto_da_alloc.
func tearsRenames(kind, options string) bool {
	return kind != "ext4" || strings.Contains(","+options+",", ",noauto_da_alloc,")
}
