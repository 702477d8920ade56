package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/client"
)

func TestNewRefusesWhatIsNoAddress(t *testing.T) {
	for _, address := range []string{"", "localhost:8080", "nats://127.0.0.1", "http://", "http://a b"} {
		if _, err := client.New(address, ""); err == nil {
			t.Errorf("%q: got no error", address)
		}
	}
	for _, address := range []string{"https://user:pa55@h", "https://h/?token=pa55", "https://h/#pa55", "http://h,https://user:pa55@h"} {
		if _, err := client.New(address, ""); err == nil || !strings.Contains(err.Error(), "the address of h must have no user, query or fragment") || strings.Contains(err.Error(), "pa55") {
			t.Errorf("%q: got %v, want that no request would have them", address, err)
		}
	}
}

func TestABaseOfRunPodsFormIsTaken(t *testing.T) {
	for _, suffix := range []string{"", "/", "/v2", "/v2/", "//"} {
		c, err := client.New("http://h:1"+suffix, "")
		if err != nil || c.BaseURL() != "http://h:1" {
			t.Errorf("%q: got %v, %v", suffix, c.BaseURL(), err)
		}
	}
}

func TestARefusalIsAnErrorWithItsReason(t *testing.T) {
	tests := map[string]struct {
		answer answer
		want   client.Error
		text   string
	}{
		"ours": {
			answer{status: 404, body: `{"error":"no such job","code":"job_not_found","status":404,"requestId":"r1"}`},
			client.Error{Status: 404, Code: client.CodeJobNotFound, Message: "no such job", RequestID: "r1"},
			"no such job (HTTP 404, job_not_found)",
		},
		"a failure names the request": {
			answer{status: 500, body: `{"error":"internal error","code":"internal","requestId":"r1"}`},
			client.Error{Status: 500, Code: "internal", Message: "internal error", RequestID: "r1"},
			"internal error (HTTP 500, internal, request r1)",
		},
		"a proxy's": {
			answer{status: 500, body: `<html>`, header: map[string]string{"X-Request-Id": "p1"}},
			client.Error{Status: 500, RequestID: "p1"},
			"Internal Server Error (HTTP 500, request p1)",
		},
		"the 404 of another program": {
			answer{status: 404, body: `<html>`}, client.Error{Status: 404}, "Not Found (HTTP 404)",
		},
		"a missing job, as RunPod says it": {
			answer{status: 404, body: `{"error":"no such job"}`}, client.Error{Status: 404, Message: "no such job"}, "no such job (HTTP 404)",
		},
		"a route of another process": {
			answer{status: 404, body: `{"error":"no such route","code":"route_not_found","requestId":"r1"}`},
			client.Error{Status: 404, Code: client.CodeRouteNotFound, Message: "no such route", RequestID: "r1"},
			"no such route (HTTP 404, route_not_found)",
		},
		"a redirect is not followed": {
			answer{status: 302, header: map[string]string{"Location": "/elsewhere"}},
			client.Error{Status: 302},
			"Found (HTTP 302)",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := serve(t, test.answer)
			_, err := s.Status(t.Context(), "ep", "j1")
			var got *client.Error
			if !errors.As(err, &got) {
				t.Fatalf("got %v, want an *Error", err)
			}
			if diff := cmp.Diff(test.want, *got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got.Error() != test.text {
				t.Errorf("got %q, want %q", got, test.text)
			}
			if client.IsNotFound(err) != (test.want.Message == "no such job") {
				t.Errorf("got IsNotFound %v", client.IsNotFound(err))
			}
			if n := len(s.requests()); n != 1 {
				t.Errorf("got %d requests, want 1: nothing says that a second would help", n)
			}
		})
	}
}

func TestReadsAreTriedAgainWhileTheServerIsBusyAndWritesAreNot(t *testing.T) {
	t.Parallel()
	busy := answer{status: 503, body: `{"error":"JetStream is away","code":"unavailable"}`}
	limited := answer{status: 429, body: `{"error":"too many requests"}`}

	s := serve(t, busy, limited, ok(`{"id":"j1","status":"COMPLETED"}`))
	if j, err := s.Status(t.Context(), "ep", "j1"); err != nil || j.ID != "j1" {
		t.Errorf("got %v, %v, want the third answer", j, err)
	}
	s = serve(t, busy)
	c, err := client.New(s.BaseURL(), "", client.WithPatience(500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context(), "ep", "j1"); err == nil {
		t.Error("got no error from a server that stays busy")
	}
	if n := len(s.requests()); n < 2 || n > 10 {
		t.Errorf("got %d requests in half a second, want some", n)
	}
	s = serve(t, busy)
	if _, err := s.Run(t.Context(), "ep", client.Request{Input: struct{}{}}); err == nil {
		t.Error("got no error")
	}
	if n := len(s.requests()); n != 1 {
		t.Errorf("got %d submissions, want 1: a second could be a second job", n)
	}
}

func TestTheServersPauseIsKept(t *testing.T) {
	t.Parallel()
	s := serve(t, answer{status: 429, header: map[string]string{"Retry-After": "1"}}, ok(`{"id":"j1"}`))
	began := time.Now()
	if _, err := s.Status(t.Context(), "ep", "j1"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("got an answer after %v, want it after the second that was asked for", took)
	}
}

func TestARetryThatCannotBeInTimeIsNotWaitedFor(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := serve(t, answer{status: 503, header: map[string]string{"Retry-After": "25"}})
	began := time.Now()
	_, err := s.Status(ctx, "ep", "j1")
	var refused *client.Error
	if !errors.As(err, &refused) || refused.RetryAfter != 25*time.Second {
		t.Errorf("got %v, want the refusal", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("got it after %v, want it at once", took)
	}
}

func TestNoAnswerIsUnreachable(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + silent.Addr().String()
	if err := silent.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(address, "", client.WithPatience(0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Health(t.Context(), "ep"); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("got %v, want ErrUnreachable", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Health(ctx, "ep"); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnreachable) {
		t.Errorf("got %v, want the caller's own end", err)
	}
}

func TestAnAnswerIsBounded(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		chunk := []byte(strings.Repeat(" ", 1<<20))
		for range 22 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	defer web.Close()
	c, err := client.New(web.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Health(t.Context(), "ep"); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
}
