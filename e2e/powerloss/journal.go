package powerloss

import (
	"os"
	"path/filepath"
)

// root is the node of the file system's own directory, which always survives.
const root = 1

// kind is what an entry of the journal says.
type kind int

const (
	created   kind = iota // entry name of directory node is the new child
	linked                // entry name of directory node is child too
	removed               // entry name of directory node is gone
	renamed               // entry name of directory node became entry toName of directory to
	written               // data is in file node at offset
	truncated             // file node has the length offset
	synced                // an fsync of node that began when the journal had began entries
)

// change is one entry of the journal.
type change struct {
	kind      kind
	node      int
	name      string
	child, to int
	toName    string
	dir       bool // the child is a directory
	replaces  bool // the rename replaced a file
	offset    int64
	data      []byte
	began     int
}

// filesystem says what a power cut may take away.
type filesystem struct {
	name string
	// namesAtOnce: creations, removals, renames and lengths may be on the disk
	// before the data is. Else they are there after the next fsync of anything.
	namesAtOnce bool
	// orderedRename: the data of a file that replaces another is on the disk before
	// its new name is, as ext4 does it unless mounted with noauto_da_alloc.
	orderedRename bool
	// survives says of each write that was not fsynced whether it survives all the
	// same; nil means that none does.
	survives func() bool
}

// file is what is left of a file, or a directory with its entries.
type file struct {
	dir     bool
	data    []byte
	entries map[string]int
}

// left returns the nodes that a power cut after these changes leaves.
func (fs filesystem) left(changes []change) tree {
	names, data := fs.reached(changes)
	nodes := tree{root: {dir: true, entries: map[string]int{}}}
	for i, c := range changes {
		switch c.kind {
		case created, linked, removed, renamed:
			if c.kind == created {
				nodes.at(c.child).dir = c.dir
			}
			if i < names {
				nodes.name(c)
			}
		case written:
			if i < data[c.node] || fs.survives != nil && fs.survives() {
				nodes.at(c.node).write(c.offset, c.data)
			}
		case truncated:
			if i < data[c.node] || i < names {
				nodes.at(c.node).truncate(c.offset)
			}
		case synced:
		}
	}
	return nodes
}

// tree is files and directories by number.
type tree map[int]*file

func (t tree) at(id int) *file {
	if t[id] == nil {
		t[id] = &file{entries: map[string]int{}}
	}
	return t[id]
}

// name changes the entries of directories.
func (t tree) name(c change) {
	switch c.kind {
	case created, linked:
		t.at(c.node).entries[c.name] = c.child
	case removed:
		delete(t.at(c.node).entries, c.name)
	case renamed:
		delete(t.at(c.node).entries, c.name)
		t.at(c.to).entries[c.toName] = c.child
	case written, truncated, synced:
	}
}

// reached says how many of the changes have their names on the disk, and for each
// file how many have their data there.
func (fs filesystem) reached(changes []change) (names int, data map[int]int) {
	data = map[int]int{}
	for _, c := range changes {
		if c.kind == synced {
			names = max(names, c.began)
			data[c.node] = max(data[c.node], c.began)
		}
	}
	if fs.namesAtOnce {
		names = len(changes)
	}
	for i, c := range changes[:names] {
		if c.kind == renamed && c.replaces && fs.orderedRename {
			data[c.child] = max(data[c.child], i)
		}
	}
	return names, data
}

func (f *file) write(offset int64, data []byte) {
	if end := offset + int64(len(data)); end > int64(len(f.data)) {
		f.truncate(end)
	}
	copy(f.data[offset:], data)
}

func (f *file) truncate(length int64) {
	if length <= int64(len(f.data)) {
		f.data = f.data[:length]
		return
	}
	f.data = append(f.data, make([]byte, length-int64(len(f.data)))...)
}

// save writes a directory with all that is below it to a path.
func (t tree) save(path string) error { return t.saveNode(root, path, map[int]string{}) }

// saveNode writes a file or a directory; saved are the paths of those that it has written.
func (t tree) saveNode(id int, path string, saved map[int]string) error {
	f := t[id]
	if first, ok := saved[id]; ok {
		return os.Link(first, path)
	}
	saved[id] = path
	if !f.dir {
		return os.WriteFile(path, f.data, 0o600)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	for name, child := range f.entries {
		if err := t.saveNode(child, filepath.Join(path, name), saved); err != nil {
			return err
		}
	}
	return nil
}
