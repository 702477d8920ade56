package disk

import (
	"path/filepath"
	"slices"
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
		if !below(m.Mountpoint, path) { // the filter passes /data for /data2 too
			continue
		}
		if len(m.Mountpoint) >= len(on.Mountpoint) { // of two at the same place the later one is seen
			on = *m
		}
	}
	return on.FSType, tearsRenames(on.FSType, on.VFSOptions)
}

// below reports whether a path is that of a mount point, or below it.
func below(mountpoint, path string) bool {
	return mountpoint == path || strings.HasPrefix(path, strings.TrimSuffix(mountpoint, "/")+"/")
}

// tearsRenames says it of a type and its mount options. Only ext4 is known to have
// the content there first, unless an option of the mount gives that up.
func tearsRenames(kind, options string) bool {
	unsafe := func(option string) bool {
		return option == "noauto_da_alloc" || option == "data=writeback" || option == "nobarrier" || option == "barrier=0"
	}
	return kind != "ext4" || slices.ContainsFunc(strings.Split(options, ","), unsafe)
}
