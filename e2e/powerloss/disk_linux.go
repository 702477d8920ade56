package powerloss

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"flightline/shared/retry"
)

// disk is a file system in memory that keeps a journal of what happens to it.
type disk struct {
	// syncTime is how long an fsync takes: there is time for others to write.
	syncTime time.Duration

	mu      sync.Mutex
	journal []change
	nodes   int
}

// mount mounts a disk at a folder; the caller unmounts it.
func mount(dir string, syncTime time.Duration) (*disk, *fuse.Server, error) {
	d := &disk{syncTime: syncTime, nodes: root}
	var never time.Duration // nothing is answered from the kernel's memory
	server, err := fs.Mount(dir, &node{disk: d, id: root, names: 1}, &fs.Options{
		AttrTimeout: &never, EntryTimeout: &never,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "powerloss", MaxWrite: 1 << 20},
	})
	return d, server, err
}

// length is how many changes the journal has.
func (d *disk) length() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.journal)
}

// changes are the first n entries of the journal.
func (d *disk) changes(n int) []change {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clip(d.journal[:n])
}

// note appends to the journal. The caller holds the lock.
func (d *disk) note(c change) { d.journal = append(d.journal, c) }

// node is a file or a directory.
type node struct {
	fs.Inode
	disk *disk
	id   int
	// These are the disk's, under its lock.
	data    []byte
	changed time.Time
	names   uint32
}

// add makes an entry for a new file or directory.
func (n *node) add(ctx context.Context, name string, mode uint32) *fs.Inode {
	d := n.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodes++
	child := &node{disk: d, id: d.nodes, changed: time.Now(), names: 1}
	d.note(change{kind: created, node: n.id, name: name, child: child.id, dir: mode == syscall.S_IFDIR})
	n.changed = child.changed
	return n.NewPersistentInode(ctx, child, fs.StableAttr{Mode: mode})
}

func (n *node) Create(ctx context.Context, name string, _, _ uint32, _ *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	return n.add(ctx, name, syscall.S_IFREG), nil, 0, 0
}

func (n *node) Mkdir(ctx context.Context, name string, _ uint32, _ *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.add(ctx, name, syscall.S_IFDIR), 0
}

func (n *node) Link(_ context.Context, target fs.InodeEmbedder, name string, _ *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	file := target.(*node) //nolint:forcetypeassert // there are no others
	n.disk.note(change{kind: linked, node: n.id, name: name, child: file.id})
	n.changed = time.Now()
	file.names++
	return target.EmbeddedInode(), 0
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	n.disk.note(change{kind: removed, node: n.id, name: name})
	n.GetChild(name).Operations().(*node).names--
	n.changed = time.Now()
	return 0
}

func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno {
	if len(n.GetChild(name).Children()) > 0 {
		return syscall.ENOTEMPTY
	}
	return n.Unlink(ctx, name)
}

func (n *node) Rename(_ context.Context, name string, to fs.InodeEmbedder, toName string, flags uint32) syscall.Errno {
	parent, child := to.(*node), n.GetChild(name)
	if flags != 0 || child == nil {
		return syscall.EINVAL
	}
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	replaced := parent.GetChild(toName)
	if replaced != nil {
		replaced.Operations().(*node).names--
	}
	n.disk.note(change{
		kind: renamed, node: n.id, name: name, child: child.Operations().(*node).id,
		to: parent.id, toName: toName, replaces: replaced != nil,
	})
	n.changed = time.Now()
	parent.changed = n.changed
	return 0
}

func (n *node) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) { return nil, 0, 0 }

func (n *node) Read(_ context.Context, _ fs.FileHandle, into []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	read := 0
	if offset < int64(len(n.data)) {
		read = copy(into, n.data[offset:])
	}
	return fuse.ReadResultData(into[:read]), 0
}

func (n *node) Write(_ context.Context, _ fs.FileHandle, data []byte, offset int64) (uint32, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	f := file{data: n.data}
	f.write(offset, data)
	n.data, n.changed = f.data, time.Now()
	n.disk.note(change{kind: written, node: n.id, offset: offset, data: slices.Clone(data)})
	return uint32(len(data)), 0 //nolint:gosec // at most MaxWrite
}

// Fsync is of a file or a directory. What comes while it is under way it need not
// bring to the disk.
func (n *node) Fsync(ctx context.Context, _ fs.FileHandle, _ uint32) syscall.Errno {
	began := n.disk.length()
	_ = retry.Sleep(ctx, n.disk.syncTime) // an interrupted one is a fast one
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	n.disk.note(change{kind: synced, node: n.id, began: began})
	return 0
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	n.attributes(&out.Attr)
	return 0
}

func (n *node) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	if size, ok := in.GetSize(); ok {
		f := file{data: n.data}
		f.truncate(int64(size)) //nolint:gosec // a length of a file in memory
		n.data, n.changed = f.data, time.Now()
		n.disk.note(change{kind: truncated, node: n.id, offset: int64(size)}) //nolint:gosec // as above
	}
	n.attributes(&out.Attr)
	return 0
}

// attributes fills in what stat says. The caller holds the lock.
func (n *node) attributes(out *fuse.Attr) {
	out.Mode, out.Size, out.Nlink = 0o700, uint64(len(n.data)), n.names
	out.SetTimes(nil, &n.changed, &n.changed)
}

// Statfs says that there is room.
func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	const block, blocks = 4096, 16 << 20
	out.Bsize, out.Frsize, out.NameLen = block, block, 255
	out.Blocks, out.Bfree, out.Bavail = blocks, blocks, blocks
	out.Files, out.Ffree = blocks, blocks
	return 0
}
