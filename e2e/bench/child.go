package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"time"

	"flightline/shared/process"
)

// config is the first line that a child reads: all it needs to start.
type config struct {
	// NATS, User and Password say where the message server is.
	NATS     string `json:"nats"`
	User     string `json:"user"`
	Password string `json:"password"`
	// Dir is the store of a server. SyncAlways makes it fsync each write before
	// it answers, Barrier lets those who wrote wait for an fsync they share.
	Dir        string `json:"dir"`
	SyncAlways bool   `json:"syncAlways"`
	Barrier    bool   `json:"barrier"`
	// Key is the API key that the API takes.
	Key string `json:"key"`
	// Endpoint and Slots are the worker's.
	Endpoint string `json:"endpoint"`
	Slots    int    `json:"slots"`
	// Crowd is how many endpoints have a waiting worker in the crowd.
	Crowd int `json:"crowd"`
	// Metrics has the process count, and answer scrapes. OTLP is where it sends
	// spans; "" means nowhere. Share is of how many jobs; "" means of all.
	Metrics bool   `json:"metrics"`
	OTLP    string `json:"otlp"`
	Share   string `json:"share"`
	// CA is a file with the certificates that a webhook process trusts; "" means
	// the system's.
	CA string `json:"ca"`
	// Profile is the file for a CPU profile; "" means none.
	Profile string `json:"profile"`
}

// ready is what a child says when it is.
type ready struct {
	// NATS is the address of the server that the child runs, if it runs one.
	NATS string `json:"nats,omitempty"`
	// HTTP is the address of its API.
	HTTP string `json:"http,omitempty"`
	// Metrics is where it is scraped.
	Metrics string `json:"metrics,omitempty"`
}

// order asks a bare process for a round; sample is its answer.
type order struct {
	Op      string `json:"op"`
	N       int    `json:"n"`
	Callers int    `json:"callers"`
	// URL is where a webhook process posts.
	URL string `json:"url,omitempty"`
	// Like has it prepare what it posts next.
	Like *posted `json:"like,omitempty"`
}

// answer is a child's answer to an order.
type answer struct {
	Sample sample `json:"sample"`
	Error  string `json:"error,omitempty"`
}

// child is a process that the bench started. It ends when its stdin does.
type child struct {
	role  string
	pid   int
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *json.Decoder
}

const (
	// readyWithin bounds the start of a child, stopWithin its end.
	readyWithin = 60 * time.Second
	stopWithin  = 15 * time.Second
)

// start starts this program in a role and waits until it is ready.
func start(ctx context.Context, role string, cfg config) (*child, ready, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, ready{}, err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, "-role", role) //nolint:gosec // ourselves
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, ready{}, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, ready{}, err
	}
	if err := cmd.Start(); err != nil {
		return nil, ready{}, err
	}
	c := &child{role: role, pid: cmd.Process.Pid, cmd: cmd, stdin: stdin, out: json.NewDecoder(stdout)}
	var r ready
	within, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := c.ask(within, cfg, &r); err != nil {
		c.stop()
		return nil, ready{}, fmt.Errorf("start %s: %w", role, err)
	}
	return c, r, nil
}

// ask sends a line and reads one. When ctx ends first, the child is killed.
func (c *child) ask(ctx context.Context, question, reply any) error {
	if err := json.NewEncoder(c.stdin).Encode(question); err != nil {
		return err
	}
	read := make(chan error, 1)
	go func() { read <- c.out.Decode(reply) }()
	select {
	case err := <-read:
		return err
	case <-ctx.Done():
		_ = c.cmd.Process.Kill() // which ends the read
		return errors.Join(ctx.Err(), <-read)
	}
}

// do has a bare process do a round.
func (c *child) do(ctx context.Context, o order) (sample, error) {
	var a answer
	if err := c.ask(ctx, o, &a); err != nil {
		return sample{}, fmt.Errorf("bare %s: %w", o.Op, err)
	}
	if a.Error != "" {
		return sample{}, fmt.Errorf("bare %s: %s", o.Op, a.Error)
	}
	return a.Sample, nil
}

// stop lets the child end by itself and kills it if it does not.
func (c *child) stop() {
	_ = c.stdin.Close()
	late := time.AfterFunc(stopWithin, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	_ = c.cmd.Wait()
}

// wire is a child's end of the line.
type wire struct {
	in  *json.Decoder
	out *json.Encoder
}

// ready says that the child is ready, then answers orders until the parent is
// gone or closes the line.
func (w *wire) ready(r ready, do func(order) (sample, error)) error {
	if err := w.out.Encode(r); err != nil {
		return err
	}
	for {
		var o order
		if err := w.in.Decode(&o); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		s, err := do(o)
		a := answer{Sample: s}
		if err != nil {
			a.Error = err.Error()
		}
		if err := w.out.Encode(a); err != nil {
			return err
		}
	}
}

func noOrders(o order) (sample, error) { return sample{}, fmt.Errorf("no such order: %s", o.Op) }

// serveRole is main of a child. All of them collect garbage as flightline's
// own main has it, the bare ones too.
func serveRole(role string) error {
	process.SpareCollector(os.Getenv("GOGC"), os.Getenv("GOMEMLIMIT"))
	w := &wire{in: json.NewDecoder(os.Stdin), out: json.NewEncoder(os.Stdout)}
	var cfg config
	if err := w.in.Decode(&cfg); err != nil {
		return err
	}
	serve, ok := roles[role]
	if !ok {
		return fmt.Errorf("no role %q", role)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if cfg.Profile == "" {
		return serve(ctx, cfg, w)
	}
	f, err := os.Create(filepath.Clean(cfg.Profile))
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	err = serve(ctx, cfg, w)
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
}
