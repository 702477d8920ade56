package control

import (
	"strings"
	"testing"

	"flightline/shared/pod"
)

// Whatever is asked for, in whichever way, no answer has a secret in it.
func TestNoAnswerShowsASecret(t *testing.T) {
	s := full(t)
	const secret = "hf_secret"
	s.expect("endpoint", s.do("POST", "/endpoints", `{"id":"upper","templateId":"t1","env":{"HF_TOKEN":"`+secret+`"}}`), 200, "", "")
	s.expect("unlock", s.do("PATCH", "/pods/full", `{"locked":false}`), 200, "", "")
	for _, call := range []string{
		"GET /pods/full" + allIncludes, "GET /pods" + allIncludes, "PATCH /pods/full", "POST /pods/full/update", "POST /pods/full/stop",
		"GET /templates", "GET /templates/t1", "PATCH /templates/t1", "POST /templates/t1/update",
		"GET /endpoints/upper" + allIncludes, "GET /endpoints" + allIncludes, "PATCH /endpoints/upper", "POST /endpoints/upper/update",
		"POST /endpoints/upper/pause", "POST /endpoints/upper/resume", "GET /endpoints/upper/workers",
		`POST /pods {"templateId":"t1"}`, `POST /templates {"name":"n","env":{"HF_TOKEN":"` + secret + `"}}`,
		`PATCH /pods/full {"env":{"NEW_KEY":"***"}}`, // an error
	} {
		method, rest, _ := strings.Cut(call, " ")
		path, body, found := strings.Cut(rest, " ")
		if !found {
			body = "{}"
		}
		got := s.do(method, path, body)
		if strings.Contains(got.raw, secret) || got.status >= 500 || got.status >= 400 && !strings.Contains(call, "NEW_KEY") {
			t.Errorf("%s: got %d %s, want an answer without the secret", call, got.status, got.raw)
		}
	}
	if p, err := s.registry.Pods.Get(t.Context(), "full"); err != nil || p.Spec.Env["HF_TOKEN"] != secret || p.Status != pod.Exited {
		t.Errorf("got %+v %v, want the pod stopped, and its secret kept", p, err)
	}
}
