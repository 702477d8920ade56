package streaming

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
	"flightline/streams"
)

// webhookJobs is how many completions the healthy receiver gets in each part;
// the full size is 10000.
var webhookJobs = flag.Int("webhooks", 1000, "completions for a healthy receiver beside hanging ones")

// hung is how many receivers hang meanwhile, kills how often the service dies.
const hung, kills = 50, 10

// answerWithin is how long the service waits for a receiver that hangs.
const answerWithin = 15 * time.Second

// told is an installation whose webhook service is a process of its own.
type told struct {
	*program.Env
	bus *testenv.Server
	api *client.Client
}

func newTold(t *testing.T) *told {
	t.Helper()
	s := &told{Env: program.New(t), bus: testenv.NewServer(t)}
	cfg := s.bus.Config()
	s.Environ = append(s.Environ, "NATS_URL="+cfg.URL, "FLIGHTLINE_NATS_USER="+cfg.User, "FLIGHTLINE_NATS_PASSWORD="+cfg.Password,
		"FLIGHTLINE_BOOTSTRAP_KEY="+program.AdminKey, "FLIGHTLINE_API_KEY="+program.AdminKey, "FLIGHTLINE_LIMITS=off", "FLIGHTLINE_EVENTS_RETENTION=2h")
	url := s.Start("serve", "api", "control", "recorder").Line(program.Ready)
	s.Environ = append(s.Environ, "FLIGHTLINE_URL="+url)
	var err error
	if s.api, err = client.New(url, program.AdminKey); err != nil {
		t.Fatal(err)
	}
	return s
}

// deliver starts the service.
func (s *told) deliver() *program.Process {
	s.T.Helper()
	d := s.Start("serve", "webhook", "--webhook-allow-http", "--webhook-allow-networks", "127.0.0.0/8", "--webhook-timeout", answerWithin.String())
	d.Line(program.Ready)
	return d
}

// redeliverSoon brings back at once what a dead process held.
func (s *told) redeliverSoon() {
	s.T.Helper()
	c, err := s.bus.JS.Consumer(s.T.Context(), streams.Webhooks, streams.WebhookConsumer)
	if err != nil {
		s.T.Fatal(err)
	}
	cfg := c.CachedInfo().Config
	cfg.AckWait = 2 * time.Second
	if _, err := s.bus.JS.UpdateConsumer(s.T.Context(), streams.Webhooks, cfg); err != nil {
		s.T.Fatal(err)
	}
}

// complete ends jobs with that webhook, several at a time, and returns when
// each of them ended.
func (s *told) complete(n int, webhook string) map[job.ID]time.Time {
	s.T.Helper()
	var mu sync.Mutex
	ended := make(map[job.ID]time.Time, n)
	todo := make(chan struct{}, n)
	for range n {
		todo <- struct{}{}
	}
	close(todo)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range todo {
				j, err := s.api.Run(s.T.Context(), "ep", client.Request{Input: map[string]int{"n": 1}, Webhook: webhook})
				if err == nil {
					_, err = s.api.Cancel(s.T.Context(), "ep", j.ID)
				}
				if err != nil {
					s.T.Errorf("complete: %v", err)
					return
				}
				mu.Lock()
				ended[j.ID] = time.Now()
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	return ended
}

// posted is a webhook that came.
type posted struct {
	at   time.Time
	id   string
	body struct {
		ID     job.ID          `json:"id"`
		Input  json.RawMessage `json:"input"`
		Output json.RawMessage `json:"output"`
	}
}

// mailbox is a receiver that answers.
type mailbox struct {
	url string
	mu  sync.Mutex
	got []posted
	// full, if not nil, is closed when more than most may come.
	full chan struct{}
	most int
}

// hold lets no more than about most come until the returned function is called.
func (m *mailbox) hold(most int) (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	full := make(chan struct{})
	m.full, m.most = full, most
	return func() { close(full) }
}

// admit waits while the mailbox is full; it reports false if the sender is gone then.
func (m *mailbox) admit(ctx context.Context) bool {
	m.mu.Lock()
	full := m.full
	if len(m.got) < m.most {
		full = nil
	}
	m.mu.Unlock()
	if full == nil {
		return true
	}
	select {
	case <-full:
		return true
	case <-ctx.Done():
		return false
	}
}

// isFull reports whether as many came as hold allows.
func (m *mailbox) isFull() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.got) >= m.most
}

func newMailbox(t *testing.T) *mailbox {
	t.Helper()
	m := &mailbox{}
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		p := posted{at: time.Now(), id: r.Header.Get("webhook-id")}
		data, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(data, &p.body) != nil {
			return // the sender died
		}
		if !m.admit(r.Context()) {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.got = append(m.got, p)
	}))
	t.Cleanup(web.Close)
	m.url = web.URL
	return m
}

// calls is how many came, with those that came again.
func (m *mailbox) calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.got)
}

// first is the first webhook of each job; a job that has several ids fails
// the test.
func (m *mailbox) first(t *testing.T) map[job.ID]posted {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	first := make(map[job.ID]posted, len(m.got))
	for _, p := range m.got {
		before, again := first[p.body.ID]
		if again && before.id != p.id {
			t.Errorf("job %s came as %s and %s, want one webhook-id", p.body.ID, before.id, p.id)
		}
		if !again {
			first[p.body.ID] = p
		}
	}
	return first
}

// A healthy receiver notices neither that others hang nor, but for a delay,
// that the service is killed again and again.
func TestAHealthyReceiverBesideHangingOnesAndKills(t *testing.T) {
	t.Parallel()
	s := newTold(t)
	s.OK("endpoint", "create", "ep", "--webhook-retries", "1s,1s")
	released := make(chan struct{})
	hanging := make([]string, hung)
	for i := range hanging {
		web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-released:
			case <-r.Context().Done():
			}
		}))
		t.Cleanup(web.Close)
		hanging[i] = web.URL
	}
	t.Cleanup(func() { close(released) }) // before they close
	d := s.deliver()
	for _, url := range hanging {
		s.complete(3, url)
	}
	m := newMailbox(t)
	ended := s.complete(*webhookJobs, m.url)
	s.Eventually("all came", func() bool { return len(m.first(t)) >= len(ended) })
	late := make([]time.Duration, 0, len(ended))
	for id, p := range m.first(t) {
		late = append(late, p.at.Sub(ended[id]))
	}
	slices.Sort(late)
	p99 := late[len(late)*99/100]
	t.Logf("%d webhooks beside %d hanging receivers: p50 %v, p99 %v, most %v", len(late), hung, late[len(late)/2], p99, late[len(late)-1])
	if p99 > answerWithin/3 {
		t.Errorf("got a p99 of %v, want a part of the %v that a hanging receiver takes", p99, answerWithin)
	}
	s.killed(d)
}

// killed kills the service, which d is, while more jobs end.
func (s *told) killed(d *program.Process) {
	s.T.Helper()
	m := newMailbox(s.T)
	var ended map[job.ID]time.Time
	var load sync.WaitGroup
	load.Go(func() { ended = s.complete(*webhookJobs, m.url) })
	for n := range kills {
		before := len(m.first(s.T))
		s.redeliverSoon()
		s.Eventually("some came", func() bool { return len(m.first(s.T)) > min(before+20, *webhookJobs-20*(kills-n)) })
		d.Kill()
		d = s.deliver()
	}
	s.redeliverSoon()
	load.Wait()
	s.Eventually("all came", func() bool { return len(m.first(s.T)) >= len(ended) })
	first := m.first(s.T)
	for id := range ended {
		if want := "msg_" + string(id) + "_1"; first[id].id != want {
			s.T.Errorf("job %s: got %q, want %q once at least", id, first[id].id, want)
		}
	}
	s.T.Logf("%d webhooks in %d calls, %d kills", len(ended), m.calls(), kills)
}
