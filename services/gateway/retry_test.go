package gateway

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

// A worker repeats a post only after a 5xx, twice, and forgets it then.
func TestAPostWaitsUntilJetStreamIsBack(t *testing.T) {
	s := newEnv(t)
	g := s.gateway(Config{Hold: time.Minute})
	w := s.worker("w1", g)
	id := s.submit()
	w.take()
	w.emit(id, `{"output":1}`)
	for _, post := range []func(){
		func() { w.emit(id, `{"output":2}`) },
		func() { w.done(id, `{"output":"all"}`) },
	} {
		before := g.service.counts.retried.Load()
		s.bus.Stop()
		answered := during(post)
		testenv.Eventually(t, "the write is repeated", func() bool { return g.service.counts.retried.Load() > before })
		s.bus.Start()
		<-answered
	}
	if diff := cmp.Diff([]string{`{"output":1}`, `{"output":2}`}, s.chunks(id)); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
	s.is(id, job.Completed, `"all"`, "")
}

// A worker that is answered 200 forgets its result.
func TestARepeatedResultWaitsForTheDisk(t *testing.T) {
	s := newEnv(t)
	var broken atomic.Bool
	s.bus.ServeBarrier(t, streams.DurablePrefix, func(context.Context, string) error {
		if broken.Load() {
			return errors.New("broken disk")
		}
		return nil
	})
	s.bus.WaitForBarrier(t, streams.DurablePrefix)
	w := s.worker("w1", s.gateway(Config{}))
	id := s.submit()
	w.take()
	broken.Store(true)
	for range 2 {
		a := w.send("POST", "/job-done/%w/"+id+"?gpu=any&isStream=false", strings.NewReader(`{"output":1}`))
		if a.status != http.StatusServiceUnavailable {
			t.Errorf("while nothing gets to the disk: got %d %s, want 503", a.status, a.raw)
		}
	}
	broken.Store(false)
	w.done(id, `{"output":1}`)
	s.is(id, job.Completed, "1", "")
}

// JetStream stores the chunk, and its answer is lost for longer than a call
// waits: the worker gets no answer meanwhile, else it would post it again.
func TestAChunkWhoseAnswerWasLostIsThereOnce(t *testing.T) {
	s := newEnv(t)
	cable := newCable(t, s.bus.Config().URL, "written once")
	at := s.bus.Config()
	at.URL = cable.url
	g := s.gatewayOn(testenv.Connect(t, at), Config{Hold: time.Minute})
	w := s.worker("w1", g)
	id := s.submit()
	w.take()
	w.emit(id, `{"output":"first"}`)
	answered := during(func() { w.emit(id, `{"output":"written once"}`) })
	testenv.Eventually(t, "the chunk is stored and its write repeated", func() bool {
		return len(s.chunks(id)) == 2 && g.service.counts.retried.Load() > 0
	})
	cable.mute.Store(false)
	<-answered
	w.emit(id, `{"output":"written once"}`) // another one, that is the same
	want := []string{`{"output":"first"}`, `{"output":"written once"}`, `{"output":"written once"}`}
	if diff := cmp.Diff(want, s.chunks(id)); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
}

func TestPollsAndPostsEndTheirConnection(t *testing.T) {
	s := newEnv(t)
	w := s.worker("w1", s.gateway(Config{}))
	id := s.submit()
	for _, request := range []string{
		"GET /job-take/%w?gpu=any", "POST /job-stream/%w/" + id + "?gpu=any", "POST /job-done/%w/" + id + "?gpu=any",
		"GET /job-take-batch/%w?gpu=any&batch_size=2", "GET /job-stop/%w?gpu=any",
	} {
		method, path, _ := strings.Cut(request, " ")
		if a := w.send(method, path, strings.NewReader(`{"output":1}`)); !a.closed || a.status >= 300 {
			t.Errorf("%s: got %d %s, closed %v, want a success that ends the connection", request, a.status, a.raw, a.closed)
		}
	}
	if a := w.send("GET", "/ping/%w?gpu=any", nil); a.closed {
		t.Error("ping: got an answer that ends the connection, want one that keeps it")
	}
}

// during runs f beside the test until it returns; ended is closed then.
func during(f func()) (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() { // waited for by its caller
		defer close(done)
		f()
	}()
	return done
}

// cable is a way to NATS on which, once the marker has passed, no answer does.
type cable struct {
	url    string
	marker []byte
	once   sync.Once
	mute   atomic.Bool
}

// newCable listens until the test ends.
func newCable(t *testing.T, to, marker string) *cable {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	c := &cable{url: "nats://" + l.Addr().String(), marker: []byte(marker)}
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
			wg.Go(func() { pass(far, near, c.requests) })
			wg.Go(func() { pass(near, far, c.answers) })
		}
	})
	return c
}

func (c *cable) requests(data []byte) []byte {
	if bytes.Contains(data, c.marker) {
		c.once.Do(func() { c.mute.Store(true) })
	}
	return data
}

func (c *cable) answers(data []byte) []byte {
	if c.mute.Load() {
		return nil
	}
	return data
}

// pass copies what may, until either side closes.
func pass(to, from net.Conn, may func([]byte) []byte) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if _, broken := to.Write(may(buf[:n])); err != nil || broken != nil {
			return
		}
	}
}
