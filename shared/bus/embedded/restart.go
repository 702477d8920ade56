package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"flightline/shared/disk"
)

// ErrCluster reports that a node of a cluster cannot be restarted like this.
var ErrCluster = errors.New("embedded: only a server that is alone can be restarted")

// Restart stops the server and starts it again with the same store, at the same
// address: the server keeps the first failed write of a stream and refuses all
// that follow. Connections come back by themselves, those of Connect too.
//
// What a failed fsync left in memory would count as stored after the restart,
// so the block that was meant and the newest one of each of the streams named
// here are first written to the disk again. After an error the server is down;
// Restart may be called again. The errors are ErrCluster, ErrStopped, ctx's,
// and those of the file system and of Start.
func (s *Server) Restart(ctx context.Context, streams ...string) error {
	if s.cfg.Cluster != nil {
		return ErrCluster
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	s.shutdown()
	s.barrier.stop()
	suspicious := map[string]bool{}
	for _, failure := range s.barrier.failures() {
		suspicious[failure.path] = true
	}
	for _, stream := range streams {
		suspicious[newestBlock(filepath.Join(s.barrier.streams, stream))] = true
	}
	for path := range suspicious {
		if err := rewrite(path, filepath.Join(s.cfg.Dir, rewriteName)); err != nil {
			return fmt.Errorf("write %s again: %w", path, err)
		}
	}
	if err := s.start(ctx); err != nil {
		return fmt.Errorf("start server in %s: %w", s.cfg.Dir, err)
	}
	return s.barrier.start()
}

// settleListen makes the port that the server was given that of each restart.
func (s *Server) settleListen() error {
	if s.cfg.Listen == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen address %q: %w", s.cfg.Listen, err)
	}
	if at, ok := s.ns.Load().Addr().(*net.TCPAddr); ok {
		s.cfg.Listen = net.JoinHostPort(host, strconv.Itoa(at.Port))
	}
	return nil
}

// JetStream reports whether the server has JetStream: it switches it off when
// it may not write to its store.
func (s *Server) JetStream() bool { return s.ns.Load().JetStreamEnabled() }

// CheckPlace returns an error if the folder of the store is no longer the one that was
// opened at the start: it was removed or renamed, or another file system is mounted there.
// What is stored since then is not found by the next start.
func (s *Server) CheckPlace() error {
	opened, err := s.lock.Stat()
	if err != nil {
		return fmt.Errorf("look at the store: %w", err)
	}
	now, err := os.Stat(filepath.Join(s.cfg.Dir, lockName))
	if err != nil || !os.SameFile(opened, now) {
		return fmt.Errorf("%s was removed or replaced since the start", s.cfg.Dir)
	}
	return nil
}

const (
	// lockName, testName and rewriteName are files beside the store.
	lockName    = "lock"
	testName    = ".write-test"
	rewriteName = ".rewrite"
	// testSize is what a store needs to come up: as much as a block.
	testSize = 8 << 20
)

// TestWrite writes 8 MB to the folder of the store, fsyncs and removes them. It
// returns what the file system says if it takes no writes, or no new files, and the
// error of CheckPlace.
func (s *Server) TestWrite() error {
	if err := s.CheckPlace(); err != nil {
		return err
	}
	path := filepath.Join(s.cfg.Dir, testName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("test the store: %w", err)
	}
	_, err = file.Write(make([]byte, testSize))
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close(), os.Remove(path)); err != nil {
		return fmt.Errorf("test the store: %w", err)
	}
	return nil
}

// checkStreams returns what the file system says if it takes no file in the folder of a
// stream. The server would write a warning, delete the folder with all that is in it,
// and go on without the stream (docs/design/jetstream.md#f17). All files are there
// together, as the server's own may be.
func (s *Server) checkStreams() error {
	dirs, err := streamDirs(s.barrier.streams)
	if err != nil {
		return err
	}
	made := make([]string, 0, len(dirs))
	for _, dir := range dirs {
		path := filepath.Join(dir, testName)
		if err = os.WriteFile(path, nil, 0o600); err != nil {
			err = fmt.Errorf("stream %s would be lost: %w", filepath.Base(dir), err)
			break
		}
		made = append(made, path)
	}
	return errors.Join(err, removeFiles(made))
}

// newestBlock is the path of the block of a stream's directory with the highest number, ""
// for none.
func newestBlock(dir string) string {
	s, err := openStored(dir)
	if err != nil || len(s.blocks) == 0 {
		return ""
	}
	return filepath.Join(dir, blockPath(s.blocks[len(s.blocks)-1]))
}

// rewrite puts a copy that was fsynced in the place of a file: what the kernel
// failed to write once it does not try again. A directory, and what is no longer
// there, is left alone.
func rewrite(path, copied string) error {
	from, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close() //nolint:errcheck // nothing was written
	info, err := from.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	to, err := os.OpenFile(copied, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return errors.Join(err, os.Remove(copied))
	}
	if err := os.Rename(copied, path); err != nil {
		return err
	}
	return disk.SyncDir(filepath.Dir(path))
}
