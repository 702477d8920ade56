package api

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/ratelimit"
	"flightline/shared/testenv"
)

// eventReader is a client of server-sent events.
type eventReader struct {
	t      *testing.T
	resp   *http.Response
	lines  *bufio.Reader
	cancel context.CancelFunc
}

func (s *env) readEvents(path, lastID string) *eventReader {
	s.t.Helper()
	return s.readEventsAs("", path, lastID)
}

// readEventsAs reads with a key, that of an administrator for "".
func (s *env) readEventsAs(key, path, lastID string) *eventReader {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(cancel)
	req := s.request("GET", path, nil).WithContext(ctx)
	req.Header.Set("Accept", "text/event-stream")
	if key != "" {
		req.Header.Set("Authorization", key)
	}
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	return &eventReader{s.t, resp, bufio.NewReader(resp.Body), cancel}
}

// next is the next block, its lines joined by |.
func (e *eventReader) next() (string, error) {
	var block []string
	for {
		line, err := e.lines.ReadString('\n')
		if err != nil {
			return strings.Join(block, "|"), err
		}
		if line = strings.TrimSuffix(line, "\n"); line == "" {
			return strings.Join(block, "|"), nil
		}
		block = append(block, line)
	}
}

func (e *eventReader) want(want ...string) {
	e.t.Helper()
	for _, w := range want {
		if got, err := e.next(); err != nil || got != w {
			e.t.Fatalf("got %.200q, %v, want %.200q", got, err, w)
		}
	}
}

func (e *eventReader) wantEnd() {
	e.t.Helper()
	if got, err := e.next(); err == nil || err.Error() != "EOF" {
		e.t.Errorf("got %.200q, %v, want the end", got, err)
	}
}

func TestEventsTellChunksAsTheyComeAndThenTheEnd(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	e := s.readEvents("/ep/stream/"+id, "")
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"} {
		if got := e.resp.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	e.want("retry: 1000")
	lease := s.take()
	for i := range 3 {
		s.emit(lease, fmt.Sprint(i))
		e.want(fmt.Sprintf(`id: %d|data: {"output":%d}`, i+1, i))
	}
	if _, err := lease.Fail(t.Context(), "no way\n"); err != nil {
		t.Fatal(err)
	}
	end := fmt.Sprintf(`event: status|data: {"id":%q,"status":"FAILED","error":"no way\n"}`, id)
	e.want(end)
	e.wantEnd()

	again := s.readEvents("/ep/stream/"+id+"?cursor=1", "2") // the newer of the two counts
	again.want("retry: 1000", `id: 3|data: {"output":2}`, end)
	again.wantEnd()
}

func TestEventsOfAJobThatGoes(t *testing.T) {
	t.Parallel()
	s := start(t)
	a := s.do("POST", "/ep/run", `{"input":{}}`)
	s.emit(s.take(), `1`)
	e := s.readEvents("/ep/stream/"+a.id(), "")
	e.want("retry: 1000", `id: 1|data: {"output":1}`)
	s.do("GET", "/ep/status/"+a.id()+"?ttl=1000", "")
	e.want(fmt.Sprintf(`event: gone|data: {"id":%q}`, a.id()))
	e.wantEnd()
}

func TestEventsKeepAQuietConnectionAlive(t *testing.T) {
	t.Parallel()
	s := start(t)
	e := s.readEvents("/ep/stream/"+s.submit(), "")
	e.want("retry: 1000")
	began := time.Now()
	e.want(": keep-alive")
	if took := time.Since(began); took > 15*time.Second+noise {
		t.Errorf("a sign of life after %v, want one at least every 15 s", took)
	}
}

func TestEventsEndWhenTheClientLeaves(t *testing.T) {
	t.Parallel()
	s := start(t)
	before := s.conn.NumSubscriptions()
	e := s.readEvents("/ep/stream/"+s.submit(), "")
	e.want("retry: 1000")
	if got := s.conn.NumSubscriptions(); got < before+2 || got > before+2+pooled {
		t.Errorf("got %d subscriptions while it is followed, want %d", got, before+2)
	}
	e.cancel()
	testenv.Eventually(t, "it is noticed", func() bool { return s.conn.NumSubscriptions() <= before+pooled })
}

func TestEventsCountAsOneAtOnceUntilTheyEnd(t *testing.T) {
	t.Parallel()
	s := start(t)
	l := s.limited(ratelimit.Table{ratelimit.Stream: {Concurrent: 1}}).env
	path := "/ep/stream/" + s.submit()
	e := l.readEvents(path, "")
	e.want("retry: 1000")
	if got := l.do("GET", path+"?format=sse", ""); got.status != http.StatusTooManyRequests {
		t.Errorf("a second one: got %d, want 429", got.status)
	}
	e.cancel()
	testenv.Within(t, 2*time.Second+noise, "another one may come", func() bool { return l.readEvents(path, "").resp.StatusCode == http.StatusOK })
}

func TestEventsEndWithTheServer(t *testing.T) {
	t.Parallel()
	s := start(t)
	other, stop, stopped := s.beside(func(l net.Listener) net.Listener { return l })
	e := other.readEvents("/ep/stream/"+s.submit(), "")
	e.want("retry: 1000")
	began := time.Now()
	stop()
	e.wantEnd()
	if err := <-stopped; err != nil || time.Since(began) > noise {
		t.Errorf("it stopped after %v: %v, want within a second", time.Since(began), err)
	}
}

func TestEventsSurviveAnOutage(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.submit()
	lease := s.take()
	e := s.readEvents("/ep/stream/"+id, "")
	e.want("retry: 1000")
	s.emit(lease, `1`)
	e.want(`id: 1|data: {"output":1}`)
	s.bus.Stop()
	s.bus.Start()
	testenv.Eventually(t, "a chunk is taken again", func() bool { return lease.Emit(t.Context(), []byte(`{"output":2}`)) == nil })
	e.want(`id: 2|data: {"output":2}`)
	testenv.Eventually(t, "the end is taken", func() bool { _, err := lease.Complete(t.Context(), nil); return err == nil })
	e.want(fmt.Sprintf(`event: status|data: {"id":%q,"status":%q}`, id, job.Completed))
	e.wantEnd()
}
