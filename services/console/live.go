package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/client"
	"flightline/shared/registry"
	"flightline/shared/retry"
	"flightline/shared/wakeup"
	"flightline/shared/web"
)

const (
	// loadShare is how many times as long as its load took an open page waits for the next
	// one: so it costs at most 2 % of a core.
	loadShare = 50
	// minPause and maxPause bound that time. What makes no event is shown within minPause.
	minPause, maxPause = 700 * time.Millisecond, 10 * time.Second
	// minEventPause and maxEventPause bound it where an event comes.
	minEventPause, maxEventPause = 300 * time.Millisecond, 900 * time.Millisecond
	// settleDelay is how long after an event the load begins: others come with it.
	settleDelay = 20 * time.Millisecond
	// listInterval is how often, on average, a screen is loaded that lists jobs, and maxLists
	// how many loads may follow each other closely: the contract allows an endpoint ten lists
	// in 10 s, half of which are for others.
	listInterval, maxLists = 2 * time.Second, 3
	// maxListPause is how long such a screen is not loaded while no event comes.
	maxListPause = 5 * time.Second
	// wholeInterval is how often an open page asks for what is read of all endpoints or all
	// streams.
	wholeInterval = 5 * time.Second
	// loadTimeout bounds one load.
	loadTimeout = 4 * time.Second
	// liveHold is how long one connection lasts; the browser comes back.
	liveHold = time.Hour
	// liveSilence is how long it may have nothing to say.
	liveSilence = 10 * time.Second
	// maxTopics bounds the topics of one connection, maxFollowed the endpoints whose events
	// wake one topic.
	maxTopics, maxFollowed = 8, 8
)

// topicID names what several open pages share: a page, seen with an API key.
type topicID struct{ apiKey, page string }

// hub has the topics that somebody watches.
type hub struct {
	s      *Service
	mu     sync.Mutex
	topics map[topicID]*topic
}

// topic is a page that is open somewhere: its fragments as they are now.
type topic struct {
	id topicID
	// listsJobs is that of the screen.
	listsJobs bool
	data      any                   // what the last load returned; of run
	watchers  map[*watcher]struct{} // of the hub's lock
	stop      context.CancelFunc    // nil before it runs; of the hub's lock

	mu        sync.Mutex
	fragments map[string]string // HTML by name
	lost      bool              // the key opens nothing any more, or what the page shows is gone
	late      bool              // the last load failed
}

// watcher is an open connection of a browser.
type watcher struct {
	token   string // of the session
	changed wakeup.Signal
	sent    map[string]string // HTML by page and name
	late    map[*topic]bool   // as it was last shown
}

// watch adds the watcher to a topic, which begins to run with its first one. It returns false if
// ctx ends before the service has begun to run it, as when the service stops.
func (h *hub) watch(ctx context.Context, id topicID, at *screen, w *watcher) (*topic, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[id]
	if t == nil {
		t = &topic{id: id, listsJobs: at.listsJobs, watchers: map[*watcher]struct{}{}, fragments: map[string]string{}}
		began := h.s.start(ctx, func(ctx context.Context) {
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			h.mu.Lock()
			watched := len(t.watchers) > 0
			t.stop = stop
			h.mu.Unlock()
			if watched {
				h.run(ctx, t)
			}
		})
		if !began {
			return nil, false
		}
		h.topics[id] = t
	}
	t.watchers[w] = struct{}{}
	return t, true
}

// leave takes the watcher away; the topic ends with its last one.
func (h *hub) leave(t *topic, w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(t.watchers, w)
	if len(t.watchers) > 0 {
		return
	}
	delete(h.topics, t.id)
	if t.stop != nil {
		t.stop()
	}
}

// pausesAfter are how long after a load that took so long the next one begins: at least,
// though an event comes, and at most.
func pausesAfter(took time.Duration) (least, most time.Duration) {
	pause := loadShare * took
	return min(max(pause, minEventPause), maxEventPause), min(max(pause, minPause), maxPause)
}

// listQuota spreads the loads of a screen that lists jobs. The zero value has all of them.
type listQuota struct{ spent time.Time }

// wait takes a load that began then, and returns how long after it the next one begins at
// least.
func (q *listQuota) wait(began time.Time) time.Duration {
	if q.spent.Before(began) {
		q.spent = began
	}
	q.spent = q.spent.Add(listInterval)
	return q.spent.Sub(began) - (maxLists-1)*listInterval
}

// run loads the topic's screen again and again until ctx ends: after an event of an endpoint
// that it follows, and at least every so often.
func (h *hub) run(ctx context.Context, t *topic) {
	var events listeners
	defer events.close()
	var lists listQuota
	woken := wakeup.New()
	again := true // what an event was about may be seen a moment later
	for ctx.Err() == nil {
		began := time.Now()
		v := h.load(ctx, t)
		least, most := pausesAfter(time.Since(began))
		if t.listsJobs {
			if least = max(least, lists.wait(began)); !again {
				most = maxListPause // events say what changes
			}
		}
		events.listen(ctx, v, began, woken)
		idle := time.NewTimer(most)
		select {
		case <-woken:
			again = true
			least = max(least, time.Since(began)+settleDelay)
		case <-idle.C:
			again = false
		case <-ctx.Done():
		}
		idle.Stop()
		_ = retry.Sleep(ctx, time.Until(began.Add(least))) // ended: the loop ends too
	}
}

// load renders the topic's fragments and wakes the watchers if one changed.
func (h *hub) load(ctx context.Context, t *topic) *visit {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	fragments, v, err := h.s.fragmentsOf(ctx, t)
	t.mu.Lock()
	changed := t.late != (err != nil)
	t.late = err != nil
	switch {
	case isUnauthorized(err), client.IsNotFound(err):
		t.lost, changed = true, changed || !t.lost
	case err == nil:
		t.lost = false // an endpoint that was made again
		changed = changed || !maps.Equal(t.fragments, fragments)
		t.fragments = fragments
	} // else what there is stays, and counts as late: the API may come back
	t.mu.Unlock()
	if changed {
		h.mu.Lock()
		for w := range t.watchers {
			w.changed.Send()
		}
		h.mu.Unlock()
	}
	return v
}

// fragmentsOf renders the fragments of a topic's page as they are now.
func (s *Service) fragmentsOf(ctx context.Context, t *topic) (map[string]string, *visit, error) {
	found, err := s.openAgain(ctx, t.id.apiKey)
	if err != nil {
		return nil, nil, err
	}
	u, err := url.Parse(t.id.page)
	if err != nil {
		return nil, nil, err
	}
	at, params := s.screenAt(strings.TrimPrefix(u.Path, Root))
	v := s.newVisit(ctx, found, params, u.Query())
	v.before = t.data
	data, err := at.load(v)
	if err != nil {
		return nil, v, err
	}
	t.data = data
	all := map[string]string{}
	for _, name := range at.fragments {
		var html bytes.Buffer
		if err := s.pages.ExecuteTemplate(&html, name, &view{V: v, D: data, Title: at.title, Nav: at.nav, Tab: at.tab}); err != nil {
			return nil, v, err
		}
		all[name] = html.String()
	}
	return all, v, nil
}

// listeners wait for events of endpoints, each for the next one.
type listeners struct {
	mu   sync.Mutex
	wg   sync.WaitGroup
	live map[string]context.CancelFunc
}

// listen waits for an event, since began, of each endpoint that the visit follows, and wakes
// the topic then.
func (l *listeners) listen(ctx context.Context, v *visit, began time.Time, woken wakeup.Signal) {
	if v == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live == nil {
		l.live = map[string]context.CancelFunc{}
	}
	for name, stop := range l.live {
		if !slices.Contains(v.follows, name) {
			stop()
		}
	}
	for _, endpoint := range v.follows[:min(len(v.follows), maxFollowed)] {
		if l.live[endpoint] != nil {
			continue
		}
		within, stop := context.WithCancel(ctx)
		l.live[endpoint] = stop
		events := v.api.Events(endpoint, client.EventsOptions{Since: began})
		l.wg.Go(func() {
			defer stop()
			for _, err := range events.All(within) {
				l.forget(endpoint) // before the load that follows, which listens again
				if err == nil {
					woken.Send()
				}
				return
			}
			l.forget(endpoint)
		})
	}
}

func (l *listeners) forget(endpoint string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.live, endpoint)
}

func (l *listeners) close() {
	l.mu.Lock()
	for _, stop := range l.live {
		stop()
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// live answers with the fragments of open pages that change, as server-sent events.
func (s *Service) live(c *fiber.Ctx) error {
	found, err := s.session(c)
	if err != nil {
		return err
	}
	pages := queryOf(c)["topics"]
	if len(pages) == 0 || len(pages) > maxTopics {
		return &pageError{status: fiber.StatusBadRequest, text: fmt.Sprintf("topics must be given 1 to %d times", maxTopics)}
	}
	w := &watcher{token: found.token, changed: wakeup.New(), sent: map[string]string{}, late: map[*topic]bool{}}
	var topics []*topic
	held, release := web.LongPoll(c, liveHold)
	end := func() {
		for _, t := range topics {
			s.hub.leave(t, w)
		}
		release()
	}
	for _, page := range pages {
		u, err := url.Parse(localPath(page))
		if err != nil {
			u = &url.URL{Path: Root + "/"}
		}
		at, _ := s.screenAt(strings.TrimPrefix(u.Path, Root))
		if at == nil || len(at.fragments) == 0 {
			end()
			return &pageError{status: fiber.StatusBadRequest, text: "topics must be paths of pages that change"}
		}
		t, ok := s.hub.watch(held, topicID{found.apiKey, u.RequestURI()}, at, w)
		if !ok {
			end()
			return context.Canceled
		}
		topics = append(topics, t)
	}
	w.changed.Send() // a topic that runs already has fragments to compare
	c.Set(fiber.HeaderContentType, eventStream)
	web.Stream(c, func() ([]byte, error) { return s.nextOf(held, topics, w) }, end)
	return nil
}

// eventStream is the type of server-sent events.
const eventStream = "text/event-stream"

// signedOut makes the page reload, which leads to the sign-in, or says what is gone.
const signedOut = "event: signed-out\ndata: {}\n\n"

// nextOf waits for fragments that the watcher has not, and returns them as events. A
// session that ended meanwhile gets no more.
func (s *Service) nextOf(held context.Context, topics []*topic, w *watcher) ([]byte, error) {
	silence := time.NewTimer(liveSilence)
	defer silence.Stop()
	for {
		var text bytes.Buffer
		select {
		case <-held.Done():
			if errors.Is(context.Cause(held), web.ErrGone) {
				return nil, web.ErrGone
			}
			return nil, io.EOF // the browser comes back
		case <-silence.C:
			text.WriteString("event: here\ndata: {}\n\n")
		case <-w.changed:
		}
		if _, err := s.sessionOf(held, w.token); errors.Is(err, registry.ErrUnauthorized) {
			return []byte(signedOut), nil
		}
		for _, t := range topics {
			if err := t.tellChanges(w, &text); err != nil {
				return nil, err
			}
		}
		if text.Len() > 0 {
			return text.Bytes(), nil
		}
	}
}

// tellChanges writes the fragments that the watcher has not seen.
func (t *topic) tellChanges(w *watcher, to *bytes.Buffer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost {
		to.WriteString(signedOut)
		return nil
	}
	if w.late[t] != t.late {
		w.late[t] = t.late
		fmt.Fprintf(to, "event: late\ndata: %t\n\n", t.late)
	}
	for _, name := range slices.Sorted(maps.Keys(t.fragments)) {
		html := t.fragments[name]
		if w.sent[t.id.page+name] == html {
			continue
		}
		w.sent[t.id.page+name] = html
		data, err := json.Marshal(map[string]string{"id": name, "html": html})
		if err != nil {
			return fmt.Errorf("encode fragment %s: %w", name, err)
		}
		to.WriteString("event: fragment\ndata: ")
		to.Write(data)
		to.WriteString("\n\n")
	}
	return nil
}
