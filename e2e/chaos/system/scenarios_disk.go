package system

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// diskScenarios take disk, file handles and bytes away from dev.
func diskScenarios() []scenario {
	return []scenario{
		{
			name: "disk-full", does: "the disk of dev is full for 8 s under load, and has room again", needs: []need{needRoot},
			rule: rule{end: 4 * minLease}, act: diskFull,
		},
		{
			name: "no-files", does: "dev may open 400 files, and 600 idle connections are held for 8 s under load",
			rule: rule{end: 4 * minLease}, act: noFiles,
		},
		{
			name: "torn-blocks", does: "kill -9 of dev under load, half a message is appended to the last block of each stream (a write that was never acknowledged), and a new start",
			rule: rule{end: 3 * minLease}, act: tornBlocks,
		},
		{
			name: "damaged-block", does: "200 bytes of a block of the records are overwritten while dev is stopped",
			rule: rule{end: 3 * minLease}, act: damagedBlock,
		},
	}
}

const (
	// shortage is how long disk or files are missing.
	shortage = 8 * time.Second
	// recoveryTimeout is how long dev may take to accept jobs again.
	recoveryTimeout = 30 * time.Second
)

// lightLoad does faults while some jobs are submitted for d.
func (w *world) lightLoad(ctx context.Context, d time.Duration, faults func() error) error {
	work := func(n int) time.Duration { return time.Duration(50+n%10*50) * time.Millisecond }
	return w.underLoad(ctx, 20, d, work, faults)
}

// servesAgain notes a violation unless dev accepts jobs in time, and starts dev
// again then, so that what was accepted can be audited.
func (w *world) servesAgain(ctx context.Context) error {
	began := time.Now()
	err := until(ctx, recoveryTimeout, func() error {
		if w.book.acceptedSince(began) == 0 {
			return errors.New("no job is accepted")
		}
		return w.callers.readyz(ctx)
	})
	if err == nil {
		w.note("serves again after %s", time.Since(began).Round(100*time.Millisecond))
		return nil
	}
	w.violate(ruleServes, "after the fault: %v", err)
	w.devShell = ""
	w.dev.kill()
	return w.startDev(ctx)
}

func diskFull(ctx context.Context, w *world) error {
	const room = 200 << 20
	if err := os.MkdirAll(w.data(), 0o700); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	if err := mountSmall(w.data(), room); err != nil {
		return err
	}
	w.closers = append(w.closers, func() { _ = unmount(w.data()) })
	if err := w.simple(ctx); err != nil {
		return err
	}
	if _, err := w.fleetOf(2*workerSlots, 0); err != nil {
		return err
	}
	return w.lightLoad(ctx, 3*shortage, func() error {
		wait(ctx, shortage/2)
		w.count("disk full")
		if err := fillSmall(w.data()); err != nil {
			return err
		}
		full := time.Now()
		wait(ctx, shortage)
		if n := w.book.acceptedSince(full.Add(shortage / 2)); n == 0 && w.callers.readyz(ctx) == nil {
			w.violate(ruleServes, "readyz is 200 while no job is accepted")
		}
		if err := resizeSmall(w.data(), room); err != nil {
			return err
		}
		return w.servesAgain(ctx)
	})
}

func noFiles(ctx context.Context, w *world) error {
	const files, connections = 400, 600
	w.devShell = fmt.Sprintf("ulimit -n %d", files)
	if err := w.simple(ctx); err != nil {
		return err
	}
	if _, err := w.fleetOf(2*workerSlots, 0); err != nil {
		return err
	}
	return w.lightLoad(ctx, 3*shortage, func() error {
		wait(ctx, shortage/4)
		w.count("no file handles")
		var held []net.Conn
		for range connections {
			c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", w.listen)
			if err != nil {
				break // no room for more
			}
			held = append(held, c)
			_, _ = c.Write([]byte("G")) // it may be closed already
		}
		w.note("%d connections held", len(held))
		wait(ctx, shortage)
		for _, c := range held {
			_ = c.Close()
		}
		return w.servesAgain(ctx)
	})
}

func tornBlocks(ctx context.Context, w *world) error {
	rounds, every := 6, 3*time.Second
	if w.cfg.Short {
		rounds = 2
	}
	if err := w.simple(ctx); err != nil {
		return err
	}
	if _, err := w.fleetOf(2*workerSlots, 0); err != nil {
		return err
	}
	return w.lightLoad(ctx, time.Duration(rounds+1)*every, func() error {
		for range rounds {
			wait(ctx, every)
			w.dev.kill()
			w.count("blocks torn")
			if err := w.tearBlocks(); err != nil {
				return err
			}
			if err := w.startDev(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// tearBlocks tears the last block of each stream.
func (w *world) tearBlocks() error {
	blocks, err := w.lastBlocks("")
	if err != nil {
		return err
	}
	for _, path := range blocks {
		if err := tear(path, w.rng); err != nil {
			return err
		}
	}
	return nil
}

// tear appends the first half of the last bytes once more, as an interrupted
// write of a message would, or bytes that mean nothing.
func tear(path string, rng *rand.Rand) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("tear a block: %w", err)
	}
	part := text[max(0, len(text)-64):]
	part = part[:len(part)/2]
	if rng.IntN(2) == 0 || len(part) == 0 {
		part = make([]byte, 37)
		for i := range part {
			part[i] = byte(rng.IntN(256)) //nolint:gosec // it is a byte
		}
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("tear a block: %w", err)
	}
	_, err = f.Write(part)
	return errors.Join(err, f.Close())
}

// lastBlocks are the newest block files of the streams whose name begins so, to
// be changed.
func (w *world) lastBlocks(stream string) (paths []string, err error) {
	w.tampered = true
	last := map[string]string{}
	err = filepath.WalkDir(w.data(), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".blk" {
			return err
		}
		dir := filepath.Dir(path)
		if name := filepath.Base(filepath.Dir(dir)); strings.HasPrefix(name, stream) {
			if old := last[dir]; len(path) > len(old) || len(path) == len(old) && path > old {
				last[dir] = path
			}
		}
		return nil
	})
	for _, path := range last {
		paths = append(paths, path)
	}
	return paths, err
}
