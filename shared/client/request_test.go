package client_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"flightline/shared/client"
)

func TestARequestIsSentAsItWasGiven(t *testing.T) {
	const accepted = `{"id":"j1","status":"IN_QUEUE"}`
	for name, test := range map[string]struct {
		request client.Request
		want    string
	}{
		"raw input":                {client.Request{Input: json.RawMessage(`{"page":"<p>&</p>"}`)}, `{"input":{"page":"<p>&</p>"}}`},
		"other input":              {client.Request{Input: map[string]string{"page": "<p>"}}, `{"input":{"page":"<p>"}}`},
		"less than a ms":           {client.Request{Input: struct{}{}, Policy: client.Policy{TTL: 30}}, `{"input":{},"policy":{"ttl":1}}`},
		"a policy":                 {client.Request{Input: struct{}{}, Policy: client.Policy{TTL: time.Hour}}, `{"input":{},"policy":{"ttl":3600000}}`},
		"a policy without a value": {client.Request{Input: struct{}{}}, `{"input":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, ok(accepted))
			if _, err := s.Run(t.Context(), "ep", test.request); err != nil {
				t.Fatal(err)
			}
			if got := s.requests()[0].Body; got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestAHeaderThatCannotBeSentIsRefusedAtOnce(t *testing.T) {
	s := serve(t, ok(`{"id":"j1","status":"IN_QUEUE"}`))
	agent, err := client.New(s.BaseURL(), "secret", client.WithUserAgent("a\nb"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = agent.Health(t.Context(), "ep")
	if err == nil || errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), `User-Agent must not have control characters, such as a line break, got ["a\nb"]`) {
		t.Errorf("User-Agent: got %v, want an error with its name and value", err)
	}
	_, err = s.Run(t.Context(), "ep", client.Request{Input: struct{}{}, IdempotencyKey: "a\nb"})
	if err == nil || errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), "Idempotency-Key must not have control characters") {
		t.Errorf("Idempotency-Key: got %v, want an error with its name", err)
	}
	if n := len(s.requests()); n != 0 {
		t.Errorf("got %d requests, want none", n)
	}
}

func TestACallWithoutAnIDIsRefusedAtOnce(t *testing.T) {
	s := serve(t, answer{status: 404, body: `{"error":"no such route","code":"route_not_found"}`})
	for name, call := range map[string]func() error{
		"a submission": func() error {
			_, err := s.Run(t.Context(), "", client.Request{Input: struct{}{}})
			return err
		},
		"a wait": func() error {
			_, err := s.Wait(t.Context(), "ep", "")
			return err
		},
		"a stream": func() error {
			_, err := collect(t.Context(), s.Stream("ep", "", client.StreamOptions{}))
			return err
		},
		"an endpoint": func() error {
			_, err := s.Endpoints().Get(t.Context(), "")
			return err
		},
		"a template": func() error { return s.Templates().Delete(t.Context(), "") },
	} {
		if err := call(); !errors.Is(err, client.ErrNoID) || client.IsNotFound(err) {
			t.Errorf("%s: got %v, want ErrNoID", name, err)
		}
	}
	if n := len(s.requests()); n != 0 {
		t.Errorf("got %d requests, want none", n)
	}
}
