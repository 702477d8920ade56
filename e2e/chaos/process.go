package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
)

// child is a process of this program in one of its roles. It ends when its
// standard input closes, so none outlives the harness, however that ends.
type child struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	gone  chan struct{} // closed once it is gone
	hit   atomic.Bool   // the harness killed or stopped it
}

// spawn starts a child. What it says on standard error goes to a file beside
// the ledgers.
func (s *site) spawn(role string, cfg roleConfig) (*child, error) {
	cfg.Ledger, cfg.Bus = s.dir, cmp.Or(cfg.Bus, s.busURL())
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	stderr, err := os.Create(filepath.Join(s.dir, cfg.Name+".log"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	defer stderr.Close() //nolint:errcheck // the child has its own
	c := &child{name: cfg.Name, gone: make(chan struct{})}
	c.cmd = exec.Command(self, "-role", role, "-config", string(text)) //nolint:gosec,noctx // this program itself; it ends by its stdin
	c.cmd.Stderr = stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	s.children.Go(func() {
		defer close(c.gone)
		_ = c.cmd.Wait() // killed, as a rule
		s.ledger.write(entry{Kind: died, Who: c.name})
	})
	return c, nil
}

// kill ends the child without a word and waits until it is gone.
func (c *child) kill() {
	c.hit.Store(true)
	_ = c.cmd.Process.Kill() // gone already, else
	<-c.gone
}

// stop asks the child to stop.
func (c *child) stop() {
	c.hit.Store(true)
	_ = terminate(c.cmd.Process) // gone already, else
}
