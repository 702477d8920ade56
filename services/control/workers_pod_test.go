package control

import (
	"testing"

	"flightline/shared/pod"
)

func TestAWorkerWhoseTokenIsRevokedIsTerminated(t *testing.T) {
	s := full(t)
	s.do("POST", "/endpoints", `{"id":"upper"}`)
	s.do("POST", "/endpoints/upper/workers", `{"id":"own"}`)
	s.expect("revoke", s.do("DELETE", "/endpoints/upper/workers/own", ""), 204, "", "")
	if p, err := s.registry.Pods.Get(t.Context(), "own"); err != nil || p.Status != pod.Terminated || p.Change != "Its token was revoked" {
		t.Errorf("got %s (%s), %v, want it TERMINATED", p.Status, p.Change, err)
	}
	// The pod of another endpoint's worker of that id is left alone.
	s.do("POST", "/endpoints", `{"id":"lower"}`)
	s.do("POST", "/endpoints/lower/workers", `{"id":"full"}`)
	s.expect("revoke", s.do("DELETE", "/endpoints/lower/workers/full", ""), 204, "", "")
	if p, err := s.registry.Pods.Get(t.Context(), "full"); err != nil || p.Status != pod.Running {
		t.Errorf("got %s, %v, want it RUNNING", p.Status, err)
	}
}
