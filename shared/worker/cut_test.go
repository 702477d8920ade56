package worker_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/testenv/backend"
	"flightline/shared/worker"
)

// cable is a connection to NATS whose answers can be lost.
type cable struct {
	url  string
	mute atomic.Bool
}

// newCable listens until the test ends.
func newCable(t *testing.T, to string) *cable {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{url: "nats://" + l.Addr().String()}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", strings.TrimPrefix(to, "nats://"))
			if err != nil {
				_ = near.Close()
				continue
			}
			wg.Go(func() { c.pass(far, near, false) })
			wg.Go(func() { c.pass(near, far, true) })
		}
	})
	return c
}

func (c *cable) pass(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if lost := answers && c.mute.Load(); n > 0 && !lost {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// The server stores what it is sent, but its answers are lost for longer than
// any call waits.
func TestWhatWasWrittenWithoutAnAnswerIsThereOnce(t *testing.T) {
	t.Parallel()
	tests := map[string]func(ctx context.Context, j *worker.Job) (any, error){
		"a chunk": func(ctx context.Context, j *worker.Job) (any, error) {
			for i := range 3 {
				if err := j.Emit(ctx, i); err != nil {
					return nil, err
				}
			}
			return "done", nil
		},
		"the outcome": func(context.Context, *worker.Job) (any, error) { return "done", nil },
	}
	for name, h := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			c := newCable(t, s.Config().URL)
			var runs atomic.Int32
			started := make(chan struct{}, 10)
			s.runAt(t, c.url, worker.Config{}, func(ctx context.Context, j *worker.Job) (any, error) {
				runs.Add(1)
				c.mute.Store(true)
				started <- struct{}{}
				return h(ctx, j)
			})
			id := s.submit(t)
			got(t, started, "the job")
			away := time.NewTimer(7 * time.Second)
			<-away.C
			c.mute.Store(false)
			j := s.wantEnd(t, id, job.Completed, `"done"`, "")
			if chunks := backend.Chunks(t, s.q, s.e, id); name == "a chunk" && len(chunks) != 3 {
				t.Errorf("got chunks %v, want 3", chunks)
			}
			if runs.Load() != 1 || j.Lost != 0 {
				t.Errorf("got %d runs, %d lost, want one", runs.Load(), j.Lost)
			}
		})
	}
}
