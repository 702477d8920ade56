package system

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"flightline/e2e/chaos/ledger"
)

// gpuScenarios have two GPUs of a file, and workers of two endpoints that take turns on them.
func gpuScenarios() []scenario {
	return []scenario{{
		name: "gpus", does: "kill -9 of autoscalers, of dev and of workers at random under load; two endpoints share two GPUs, and the workers of one sleep (-for, 1 min unless given)",
		rule: rule{end: 15 * minLease}, limit: 10 * time.Minute, long: true, needs: []need{needProc}, act: gpuKills,
	}}
}

const (
	// rivalName is the endpoint whose workers sleep; its jobs are not audited.
	rivalName = "rival"
	twoGPUs   = `[{"uuid":"GPU-1","vendor":"nvidia","name":"NVIDIA L4","memoryMb":24576},{"uuid":"GPU-2","vendor":"nvidia","name":"NVIDIA L4","memoryMb":24576}]`
	// gpuTime is how long the scenario goes on unless -for says.
	gpuTime = time.Minute
	// workerKillPause is the least time between two kills of workers, or a third of the
	// time: those that are killed more often count as crashing, and their GPUs as failing.
	workerKillPause = 90 * time.Second
	// burstJobs is how many jobs come at once; between bursts workers idle, and yield.
	burstJobs, burstPause = 4, 4 * time.Second
	// minKillPause and maxKillPause are the pauses between two kills.
	minKillPause, maxKillPause = 2 * time.Second, 9 * time.Second
)

// gpuFleet is what the scenario kills.
type gpuFleet struct {
	*world
	scalers [2]*process
	audit   *gpuAudit
	killed  time.Time // a worker was, last
}

func gpuKills(ctx context.Context, w *world) error {
	lasts := w.cfg.For
	if lasts == 0 {
		lasts = gpuTime
	}
	f := &gpuFleet{world: w, audit: newGPUAudit(w), killed: time.Now()}
	if err := f.begin(ctx); err != nil {
		return err
	}
	auditing, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.audit.run(auditing)
	}()
	err := w.during(func() { f.load(ctx, lasts) }, func() error {
		for end := time.Now().Add(lasts); wait(ctx, minKillPause+time.Duration(w.rng.Int64N(int64(maxKillPause-minKillPause)))) && time.Now().Before(end); {
			if err := f.kill(ctx, min(workerKillPause, lasts/3)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.settle(ctx)
	err = f.end(ctx)
	stop()
	<-done
	f.audit.report()
	return err
}

// begin starts dev and two autoscalers beside it, which all report the same two GPUs.
func (f *gpuFleet) begin(ctx context.Context) error {
	if err := os.WriteFile(f.gpus(), []byte(twoGPUs), 0o600); err != nil {
		return fmt.Errorf("write the GPUs: %w", err)
	}
	if err := f.startDev(ctx, "--limits", "off", "--gpus", f.gpus()); err != nil {
		return err
	}
	for i := range f.scalers {
		if err := f.startScaler(ctx, i); err != nil {
			return err
		}
	}
	shared := []string{
		"--driver", "process", "--gpus", "1", "--workers-max", "2", "--min-hold", "1s", "--max-swap-wait", "4s",
		"--idle-timeout", "1s", "--max-lost-workers", "100",
	}
	if err := f.endpoint(ctx, append(shared, "--", f.cfg.Binary, "worker", endpointName, "--data", f.data(), "--log-level", "warn", "--", f.cfg.Handler, f.ledger())...); err != nil {
		return err
	}
	asleep := filepath.Join(f.dir, asleepPrefix)
	rival := append([]string{"endpoint", "create", rivalName, "--url", "http://" + f.listen, "--api-key", apiKey, "--lease", minLease.String()}, shared...)
	rival = append(rival, "--sleep-timeout", "10m", "--sleep-gpu-share", "0", "--",
		f.cfg.Binary, "worker", rivalName, "--data", f.data(), "--log-level", "warn",
		"--sleep-command", "touch '"+asleep+"'$PPID", "--wake-command", "rm -f '"+asleep+"'$PPID",
		"--", "/bin/sh", "-c", "cat >/dev/null; sleep 0.2; echo 1")
	_, err := f.output(ctx, f.cfg.Binary, rival...)
	return err
}

func (f *gpuFleet) gpus() string { return filepath.Join(f.dir, "gpus.json") }

// startScaler starts an autoscaler with a machine of its own.
func (f *gpuFleet) startScaler(ctx context.Context, i int) error {
	text, err := f.output(ctx, f.cfg.Binary, "env", "-o", "json", "--data", f.data())
	if err != nil {
		return err
	}
	var at struct {
		NatsURL      string `json:"natsUrl"`
		NatsUser     string `json:"natsUser"`
		NatsPassword string `json:"natsPassword"`
	}
	if err := json.Unmarshal([]byte(text), &at); err != nil {
		return fmt.Errorf("read the environment of dev: %w", err)
	}
	name := fmt.Sprint("autoscaler", i)
	env := []string{"NATS_URL=" + at.NatsURL, "FLIGHTLINE_NATS_USER=" + at.NatsUser, "FLIGHTLINE_NATS_PASSWORD=" + at.NatsPassword}
	f.scalers[i], err = f.start(name, env, f.cfg.Binary, "serve", "autoscaler", "--create-streams=false", "--drivers", "process",
		"--fleet-folder", filepath.Join(f.dir, name), "--gateway-url", "http://"+f.listen, "--gpus", f.gpus(), "--metrics-listen", "off", "--listen", "127.0.0.1:0")
	return err
}

// load submits bursts of jobs to both endpoints in turn.
func (f *gpuFleet) load(ctx context.Context, lasts time.Duration) {
	n := 0
	for end := time.Now().Add(lasts); time.Now().Before(end); n++ {
		for i := range burstJobs {
			if n%2 == 0 {
				_ = f.callers.submit(ctx, ledger.Input{Milliseconds: 300 + i*400}) // the book has what was not accepted
			} else {
				f.post(ctx, "/v2/"+rivalName+"/run", `{"input":{}}`)
			}
		}
		if !wait(ctx, burstPause) {
			return
		}
	}
}

// post sends a request once; what fails is a fault of dev's, which others count.
func (f *gpuFleet) post(ctx context.Context, path, body string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.listen+path, strings.NewReader(body))
	if err != nil {
		return
	}
	_, _, _ = f.callers.do(req, &struct{}{})
}

// kill kills an autoscaler with its workers, dev with its own, or all workers of one endpoint.
func (f *gpuFleet) kill(ctx context.Context, pause time.Duration) error {
	switch n := f.rng.IntN(8); {
	case n == 0:
		f.harmWorkersOf(f.dev.cmd.Process.Pid)
		f.count("dev killed")
		f.dev.kill()
		return f.startDev(ctx)
	case n < 3 && time.Since(f.killed) >= pause:
		f.killed = time.Now()
		for _, p := range f.gpuProcesses() {
			if p.endpoint == []string{endpointName, rivalName}[n-1] {
				f.book.harm(killed, p.pod)
				f.count("worker killed")
				_ = killProcess(p.pid) // it may have ended
			}
		}
		return nil
	default:
		i := n % len(f.scalers)
		f.harmWorkersOf(f.scalers[i].cmd.Process.Pid)
		f.count("autoscaler killed")
		f.scalers[i].kill()
		return f.startScaler(ctx, i)
	}
}

// harmWorkersOf notes that the workers which end with a program are about to be killed.
func (f *gpuFleet) harmWorkersOf(program int) {
	for _, p := range f.gpuProcesses() {
		if p.descendsFrom(program) {
			f.book.harm(killed, p.pod)
		}
	}
}

// end turns both fleets off; then no GPU is claimed.
func (f *gpuFleet) end(ctx context.Context) error {
	for _, id := range []string{endpointName, rivalName} {
		if _, err := f.output(ctx, f.cfg.Binary, "endpoint", "update", id, "--workers-max", "0", "--url", "http://"+f.listen, "--api-key", apiKey); err != nil {
			return err
		}
	}
	err := until(ctx, calmTimeout, func() error {
		claims, err := f.audit.claims(ctx)
		if err == nil && len(claims) > 0 {
			err = fmt.Errorf("claims are left: %+v", claims)
		}
		return err
	})
	if err != nil {
		f.violate(ruleGPU, "%v", err)
	}
	return f.auditSteps(ctx)
}
