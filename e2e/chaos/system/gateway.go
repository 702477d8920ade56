package system

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"flightline/shared/testenv/port"
)

// natsEnv are the settings by which another process reaches dev's NATS.
func (w *world) natsEnv() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(w.data(), "dev.json"))
	if err != nil {
		return nil, fmt.Errorf("find dev: %w", err)
	}
	var dev struct {
		NATSUser     string `json:"natsUser"`
		NATSPassword string `json:"natsPassword"`
	}
	if err := json.Unmarshal(text, &dev); err != nil {
		return nil, fmt.Errorf("find dev: %w", err)
	}
	return []string{
		"NATS_URL=nats://" + w.natsAt, "FLIGHTLINE_NATS_USER=" + dev.NATSUser, "FLIGHTLINE_NATS_PASSWORD=" + dev.NATSPassword,
	}, nil
}

// serve starts roles in a process of their own, beside dev, from this program,
// and returns the address of their HTTP.
func (w *world) serve(ctx context.Context, name, program string, roles ...string) (p *process, url string, err error) {
	env, err := w.natsEnv()
	if err != nil {
		return nil, "", err
	}
	ports, err := port.Free(1)
	if err != nil {
		return nil, "", err
	}
	args := append([]string{"serve"}, roles...)
	p, err = w.start(name, env, program, append(args, "--listen", ports[0], "--metrics-listen", "off", "--log-level", "warn")...)
	if err != nil {
		return nil, "", err
	}
	return p, "http://" + ports[0], p.says(ctx, "flightline ready")
}

// gateway starts a gateway and a worker that polls it, and returns both
// once the worker waits for a job.
func (w *world) gateway(ctx context.Context) (gateway, polling *process, err error) {
	gateway, url, err := w.serve(ctx, "gateway", w.cfg.Binary, "gateway")
	if err != nil {
		return nil, nil, err
	}
	text, err := w.output(ctx, w.cfg.Binary, "worker", "env", endpointName, "--worker", "polling",
		"--gateway-url", url, "--url", "http://"+w.listen, "--api-key", apiKey)
	if err != nil {
		return nil, nil, err
	}
	env := append(strings.Fields(text), "CHAOS_WORKER=polling")
	if polling, err = w.start("polling", env, w.cfg.Poller, w.ledger()); err != nil {
		return nil, nil, err
	}
	if err := until(ctx, readyTimeout, func() error { return w.workers(ctx, 1) }); err != nil {
		return nil, nil, err
	}
	wait(ctx, time.Second) // its poll is open
	return gateway, polling, nil
}

// workers returns nil once the endpoint has so many workers.
func (w *world) workers(ctx context.Context, n int) error {
	text, err := w.output(ctx, w.cfg.Binary, "health", endpointName, "-o", "json", "--url", "http://"+w.listen, "--api-key", apiKey)
	if err != nil {
		return err
	}
	var health struct {
		Workers struct {
			Idle    int `json:"idle"`
			Running int `json:"running"`
		} `json:"workers"`
	}
	if err := json.Unmarshal([]byte(text), &health); err != nil {
		return fmt.Errorf("health %q: %w", text, err)
	}
	if got := health.Workers.Idle + health.Workers.Running; got < n {
		return fmt.Errorf("%d workers, want %d", got, n)
	}
	return nil
}
