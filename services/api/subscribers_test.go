package api

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"flightline/shared/events"
	"flightline/shared/ratelimit"
	"flightline/shared/testenv"
)

func TestSubscribersAreKeptAlive(t *testing.T) {
	t.Parallel()
	s, _ := startTelling(t)
	e := s.readEvents("/ep/events", "")
	e.want("retry: 1000|id: 0")
	began := time.Now()
	e.want(": keep-alive|id: 0")
	if took := time.Since(began); took > 15*time.Second+noise {
		t.Errorf("a sign of life after %v, want one at least every 15 s", took)
	}
}

func TestSubscribersThatLeaveAreNoticed(t *testing.T) {
	t.Parallel()
	s, _ := startTelling(t)
	e := s.readEvents("/ep/events", "")
	e.wantBegun()
	asked := func() bool {
		before := s.conn.Stats().OutMsgs
		<-time.After(300 * time.Millisecond)
		return s.conn.Stats().OutMsgs > before+1
	}
	testenv.Eventually(t, "the log is read", asked)
	e.cancel()
	testenv.Within(t, 2*time.Second+noise, "the log is read no more", func() bool { return !asked() })
}

func TestSubscribersCountAsOneAtOnceUntilTheyEnd(t *testing.T) {
	t.Parallel()
	s, log := startTelling(t)
	l := s.limited(ratelimit.Table{ratelimit.Stream: {Concurrent: 1}}).env
	l.service.tail = events.NewTail(log, nil)
	e := l.readEvents("/ep/events", "")
	e.wantBegun()
	if got := l.do("GET", "/ep/events", ""); got.status != http.StatusTooManyRequests {
		t.Errorf("a second one: got %d, want 429", got.status)
	}
	e.cancel()
	testenv.Within(t, 2*time.Second+noise, "another one may come", func() bool { return l.readEvents("/ep/events", "").resp.StatusCode == http.StatusOK })
}

func TestSubscriptionsEndWithTheServer(t *testing.T) {
	t.Parallel()
	s, _ := startTelling(t)
	other, stop, stopped := s.beside(func(l net.Listener) net.Listener { return l })
	e := other.readEvents("/ep/events", "")
	e.wantBegun()
	began := time.Now()
	stop()
	e.wantEnd()
	if err := <-stopped; err != nil || time.Since(began) > noise {
		t.Errorf("it stopped after %v: %v, want at once", time.Since(began), err)
	}
}

func TestSubscriptionsSurviveAnOutage(t *testing.T) {
	t.Parallel()
	s, log := startTelling(t)
	e := s.readEvents("/ep/events", "")
	e.wantBegun()
	life := lifeOf("a")
	appendTo(t, log, life[:1]...)
	e.wantNames("1 job.queued a")
	s.bus.Stop()
	s.bus.Start()
	testenv.Eventually(t, "the rest is written", func() bool { return log.Append(t.Context(), life[1:]...) == nil })
	e.wantNames("2.4094 job.started a", "2 job.failed a")
}

// What happened to a job, and what it printed, is found without its output of up to 20 MB.
func TestEventsAndLinesOfAJobAreReadWithoutItsOutput(t *testing.T) {
	t.Parallel()
	s, _ := startTelling(t)
	id := s.submit()
	const size = 4 << 20
	s.complete(`"` + strings.Repeat("x", size) + `"`)
	for _, list := range []string{"events", "logs"} {
		before := s.conn.Stats().InBytes
		got := s.sendLoosely(s.request(http.MethodGet, "/ep/"+list+"/"+id+"?follow=false", http.NoBody))
		if read := s.conn.Stats().InBytes - before; got.status != http.StatusOK || read > size/2 {
			t.Errorf("%s: got %d, and %d bytes were read, want 200, and less than %d", list, got.status, read, size/2)
		}
	}
}
