package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"flightline/shared/client"
)

// telling serves the turns, the last one again and again, and notes what each
// connection asks for.
func telling(t *testing.T, turns ...turn) (c *client.Client, asked func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now := turns[min(len(seen), len(turns)-1)]
		seen = append(seen, r.URL.RequestURI()+" "+r.Header.Get("Last-Event-ID"))
		mu.Unlock()
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		if now.status != 0 {
			w.WriteHeader(now.status)
		}
		_, _ = io.WriteString(w, now.text)
		if !now.ends {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(web.Close)
	c, err := client.New(web.URL, "secret")
	if err != nil {
		t.Fatal(err)
	}
	return c, func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(seen) }
}

func told(n int) string {
	return fmt.Sprintf("id: %d\nevent: job.failed\ndata: {\"id\":\"e%d\",\"type\":\"job.failed\",\"subject\":\"j\",\"time\":\"2026-01-31T12:00:00.5Z\","+
		"\"data\":{\"status\":\"FAILED\",\"attempt\":1,\"run\":2,\"workerId\":\"w\",\"error\":\"no\"}}\n\n", n, n)
}

const (
	begun     = "retry: 1000\nid: 7\n\n"
	allTold   = "event: end\ndata: {}\n\n"
	stillHere = ": keep-alive\nid: 9\n\n"
)

// hear reads events until there are n, or to the end.
func hear(ctx context.Context, e *client.Events, n int) (got string, err error) {
	for event, err := range e.All(ctx) {
		if err != nil {
			return got, err
		}
		got += event.Cursor + "=" + event.ID + " "
		if n--; n == 0 {
			break
		}
	}
	return got, nil
}

func TestEventsGoOnWhereTheyWere(t *testing.T) {
	t.Parallel()
	const path = "/v2/ep/events"
	since := time.Date(2026, 1, 31, 13, 0, 0, 0, time.FixedZone("", 3600))
	tests := map[string]struct {
		options client.EventsOptions
		turns   []turn
		n       int
		want    string
		asked   []string
	}{
		"all there is":         {client.EventsOptions{Once: true, After: "0"}, []turn{{text: begun + told(8) + told(11) + allTold, ends: true}}, 0, "8=e8 11=e11 ", []string{path + "?follow=false 0"}},
		"of a job, narrowed":   {client.EventsOptions{Job: "j", Types: []string{"job.failed", "job.queued"}, Since: since}, []turn{{text: begun + told(8)}}, 1, "8=e8 ", []string{path + "/j?since=2026-01-31T12%3A00%3A00Z&type=job.failed%2Cjob.queued "}},
		"broken before any":    {client.EventsOptions{}, []turn{{text: begun}, {text: told(8)}}, 1, "8=e8 ", []string{path + " ", path + " 7"}},
		"broken after silence": {client.EventsOptions{}, []turn{{text: begun + told(8) + stillHere}, {text: told(10)}}, 2, "8=e8 10=e10 ", []string{path + " ", path + " 9"}},
		"broken within one":    {client.EventsOptions{}, []turn{{text: begun + told(8)[:40]}, {text: told(8)}}, 1, "8=e8 ", []string{path + " ", path + " 7"}},
		"a server that stops":  {client.EventsOptions{}, []turn{{text: begun + told(8), ends: true}, {status: 503, text: `{}`, ends: true}, {text: told(9)}}, 2, "8=e8 9=e9 ", []string{path + " ", path + " 8", path + " 8"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, asked := telling(t, test.turns...)
			got, err := hear(t.Context(), c.Events("ep", test.options), test.n)
			if err != nil || got != test.want || !slices.Equal(asked(), test.asked) {
				t.Errorf("got %q, %v, asking %q, want %q asking %q", got, err, asked(), test.want, test.asked)
			}
		})
	}
}

func TestAnEventSaysWhatHappened(t *testing.T) {
	c, _ := telling(t, turn{text: told(8)})
	for got, err := range c.Events("ep", client.EventsOptions{}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got.Raw = nil
		want := client.Event{
			Cursor: "8", ID: "e8", Type: "job.failed", Job: "j", Time: time.Date(2026, 1, 31, 12, 0, 0, 5e8, time.UTC),
			Status: "FAILED", Attempt: 1, Run: 2, WorkerID: "w", Error: "no",
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		break
	}
}

func TestEventsEndWithAnError(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		turns    []turn
		patience time.Duration
		is       func(error) bool
		requests int
	}{
		"no such job":   {[]turn{{status: 404, text: `{"error":"no such job","code":"job_not_found"}`, ends: true}}, 0, client.IsNotFound, 1},
		"key revoked":   {[]turn{{text: begun, ends: true}, {status: 401, text: `{}`, ends: true}}, 0, func(err error) bool { return err != nil }, 2},
		"no patience":   {[]turn{{text: begun}}, -1, func(err error) bool { return errors.Is(err, client.ErrUnreachable) }, 1},
		"a strange one": {[]turn{{text: "id: 1\nevent: job.failed\ndata: x\n\n", ends: true}}, 0, func(err error) bool { return err != nil }, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, asked := telling(t, test.turns...)
			got, err := hear(t.Context(), c.Events("ep", client.EventsOptions{Patience: test.patience}), 0)
			if got != "" || !test.is(err) || len(asked()) != test.requests {
				t.Errorf("got %q, %v after %d requests, want an error after %d", got, err, len(asked()), test.requests)
			}
		})
	}
}
