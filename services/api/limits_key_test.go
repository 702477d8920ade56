package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"flightline/shared/endpoint"
	"flightline/shared/ratelimit"
	"flightline/shared/registry"
	"flightline/shared/testenv"
)

// as is a request with another key.
func (l *limited) as(plain, method, path, body string) answer {
	l.t.Helper()
	req := l.request(method, path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+plain)
	return l.send(req)
}

func (l *limited) key(quota ratelimit.Quota) string {
	l.t.Helper()
	plain, _, err := l.registry.Keys.Create(l.t.Context(), registry.KeySpec{Scopes: registry.AllScopes(), Quota: quota})
	if err != nil {
		l.t.Fatal(err)
	}
	return plain
}

func TestAKeyHasARateAtAllEndpointsTogether(t *testing.T) {
	t.Parallel()
	l := start(t).limited(ratelimit.Table{ratelimit.Key: {Requests: 3}, ratelimit.Status: {Requests: 100}})
	other, err := l.registry.Endpoints.Create(t.Context(), endpoint.Endpoint{ID: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.queue.CreateEndpoint(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	few, many := l.key(ratelimit.Quota{Requests: new(int64(2))}), l.key(ratelimit.Quota{Requests: new(int64(0))})
	for i, path := range []string{"/ep/status/x", "/other/status/x"} {
		if got := l.as(few, "GET", path, ""); got.status != 404 {
			t.Errorf("request %d: got %d %s", i, got.status, got.raw)
		}
	}
	got := l.as(few, "POST", "/ep/run", `{"input":{}}`)
	want := "too many requests: this key allows 2 in 10 s; try again in 10 s"
	if got.status != 429 || got.body["error"] != want || got.header.Get("Retry-After") != "10" {
		t.Errorf("over its quota: got %d %s, Retry-After %s", got.status, got.raw, got.header.Get("Retry-After"))
	}
	for i := range 4 { // the table's bound holds for a key without a quota
		if got := l.do("GET", "/ep/status/x", ""); (got.status == 429) != (i >= 3) {
			t.Errorf("default, request %d: got %d %s", i, got.status, got.raw)
		}
		if got := l.as(many, "GET", "/ep/status/x", ""); got.status != 404 {
			t.Errorf("no bound, request %d: got %d %s", i, got.status, got.raw)
		}
	}
	l.pass(ratelimit.Span)
	if got := l.as(few, "GET", "/ep/status/x", ""); got.status != 404 {
		t.Errorf("after the window: got %d %s", got.status, got.raw)
	}
}

func TestAKeysRateHoldsForTheRoutesOfAllEndpoints(t *testing.T) {
	t.Parallel()
	l := start(t).limited(ratelimit.Table{ratelimit.Key: {}, ratelimit.Stats: {Requests: 1}, ratelimit.Stream: {Requests: 1}})
	for _, path := range []string{"/v1/overview", "/v1/failures", "/v1/workers", "/v1/events?follow=false", "/v1/jobs/x"} {
		key := l.key(ratelimit.Quota{Requests: new(int64(2))})
		for i := range 3 {
			if got := l.fetch(key, path); (got.status == 429) != (i == 2) || got.header.Get("RateLimit-Policy") != "" {
				t.Errorf("%s, request %d: got %d %s, RateLimit-Policy %q", path, i, got.status, got.raw, got.header.Get("RateLimit-Policy"))
			}
		}
	}
}

// What the key's bound refuses does not count for the endpoint, and what the
// endpoint's refuses is not counted as a request under way.
func TestAKeysConcurrentRequests(t *testing.T) {
	t.Parallel()
	l := start(t).limited(ratelimit.Table{ratelimit.Status: {Requests: 3}, ratelimit.RunSync: {}})
	plain := l.key(ratelimit.Quota{Concurrent: new(int64(1))})
	ctx, leave := context.WithCancel(t.Context())
	held := l.request("POST", "/ep/runsync?wait=60000", strings.NewReader(`{"input":{}}`)).WithContext(ctx)
	held.Header.Set("Authorization", "Bearer "+plain)
	left := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(held)
		if err == nil {
			_ = resp.Body.Close()
		}
		left <- err
	}()
	testenv.Eventually(t, "a request is held", func() bool {
		s, err := l.queue.Counts.Stats(t.Context(), l.endpoint)
		return err == nil && s.Queued == 1
	})
	got := l.as(plain, "GET", "/ep/status/x", "")
	if got.status != 429 || got.body["error"] != "too many requests at once: this key allows 1" || got.header.Get("RateLimit") != "" {
		t.Errorf("got %d %s", got.status, got.raw)
	}
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the held request: got %v", err)
	}
	for i := range 4 { // the endpoint allows three
		testenv.Eventually(t, "the place is free", func() bool { return l.as(plain, "GET", "/nobody/status/x", "").status == 404 })
		if got := l.as(plain, "GET", "/ep/status/x", ""); (got.status == 429) != (i >= 3) {
			t.Errorf("request %d of the endpoint: got %d %s", i, got.status, got.raw)
		}
	}
}
