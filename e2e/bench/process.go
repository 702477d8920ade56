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
	"slices"
	"time"

	"flightline/e2e/gauge"
	"flightline/shared/process"
	"flightline/streams"
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
	// Profile is the file for a CPU profile; "" means none.
	Profile string `json:"profile"`
}

// ready is what a child says when it is.
type ready struct {
	// NATS is the address of the server that the child runs, if it runs one.
	NATS string `json:"nats,omitempty"`
	// HTTP is the address of its API.
	HTTP string `json:"http,omitempty"`
}

// order asks a bare process for a round; sample is its answer.
type order struct {
	Op      string `json:"op"`
	N       int    `json:"n"`
	Callers int    `json:"callers"`
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
	process.TuneGC(os.Getenv("GOGC"), os.Getenv("GOMEMLIMIT"))
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

// fsyncTime is the median time that the disk takes for 4 KB.
func fsyncTime(dir string) time.Duration {
	f, err := os.CreateTemp(dir, "fsync-")
	if err != nil {
		return 0
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	block := make([]byte, 4096)
	took := make([]time.Duration, 0, 100)
	for range cap(took) {
		began := time.Now()
		if _, err := f.Write(block); err != nil || f.Sync() != nil {
			return 0
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return quantile(took, 0.5)
}

// drained waits until the endpoint's queue is empty: every job is finished and
// its message acknowledged.
func (l link) drained(ctx context.Context, endpointID string) error {
	stream, err := l.js.Stream(ctx, streams.Jobs(endpointID))
	if err != nil {
		return err
	}
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := stream.Info(ctx)
		if err != nil {
			return err
		}
		if info.State.Msgs == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d jobs of %s are left: %w", info.State.Msgs, endpointID, ctx.Err())
		}
	}
}

// empty throws away what waits on an endpoint without a worker.
func (l link) empty(ctx context.Context, endpointID string) error {
	stream, err := l.js.Stream(ctx, streams.Jobs(endpointID))
	if err != nil {
		return err
	}
	return stream.Purge(ctx)
}

// usage is the CPU time so far of the processes that take part, by what they
// are for; the client is this process.
func (s *env) usage(bare bool) map[string]time.Duration {
	parts := map[string][]string{"server": {roleServer}, "api": {roleAPI, roleEmbedded}, "worker": {roleWorker}}
	if bare {
		parts = map[string][]string{"server": {roleBareServer}, "api": {rolePublisher, roleBareEmbedded}, "worker": {roleConsumer}}
	}
	used := make(map[string]time.Duration)
	for part, names := range parts {
		for _, c := range s.children {
			if slices.Contains(names, c.role) {
				used[part] += gauge.CPUTime(c.pid)
			}
		}
	}
	used["client"] = gauge.CPUTime(os.Getpid())
	return used
}
