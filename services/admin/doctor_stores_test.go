package admin_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/services/admin"
	"flightline/shared/testenv/backend"
	"flightline/streams"
)

// NATS keeps the first failed write of a stream, and answers no later one: the
// doctor asks for it, and fails until NATS was restarted.
func TestDoctorFindsAStreamThatRefusesWrites(t *testing.T) {
	t.Parallel()
	s := backend.New(t)
	if f := found(doctor(t, s.Bus, false), "stores"); f.State != admin.OK || !strings.HasPrefix(f.Text, "none of ") {
		t.Errorf("all well: got %+v", f)
	}
	mend := s.Bus.BreakStore(streams.Scaling)
	for n := 0; ; n++ {
		_, err := s.Bus.NC.Request(streams.ScalingSubject("x"), make([]byte, 900<<10), 2*time.Second)
		if errors.Is(err, nats.ErrTimeout) {
			break
		} else if err != nil || n > 20 {
			t.Fatalf("got %v after %d writes, want a write that is not answered", err, n)
		}
	}
	mend()
	r := doctor(t, s.Bus, false)
	f := found(r, "store of "+streams.Scaling)
	if f.State != admin.Fail || !strings.Contains(f.Text, "is a directory") || !strings.Contains(f.Hint, "restart NATS") || !r.Failed() {
		t.Errorf("got %+v, failed %v; want a fail with the server's reason, and what to do", f, r.Failed())
	}
	restart(t, s, func() {})
	if r := doctor(t, s.Bus, false); r.Failed() {
		t.Errorf("restarted: got %+v, want no fail", r)
	}
}
