package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/testenv"
	"flightline/streams"
)

func TestUndeleted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		unread  []span
		first   uint64
		deleted []uint64
		want    string
	}{
		"nothing":                      {nil, 1, nil, ""},
		"all deleted":                  {[]span{{2, 4}, {7, 7}}, 1, []uint64{2, 3, 4, 7}, ""},
		"one in the middle":            {[]span{{2, 6}}, 1, []uint64{2, 3, 5, 6}, "4"},
		"the ends":                     {[]span{{2, 6}}, 1, []uint64{3, 4, 5}, "2, 6"},
		"a part of a range":            {[]span{{2, 9}}, 1, []uint64{5}, "2 to 4, 6 to 9"},
		"none deleted":                 {[]span{{2, 9}}, 1, nil, "2 to 9"},
		"dropped from the front since": {[]span{{2, 9}}, 8, nil, "8 to 9"},
		"all dropped since":            {[]span{{2, 9}}, 10, []uint64{12}, ""},
		"cut off at the end since":     {[]span{{9, 9}, {11, 14}, {16, 17}}, 1, nil, "9, 11"},
		"many":                         {[]span{{1, 1}, {3, 3}, {5, 5}, {7, 7}, {9, 9}, {11, 11}}, 1, nil, "1, 3, 5, 7, 9, …"},
	} {
		if diff := cmp.Diff(test.want, spans(undeleted(test.unread, test.first, 11, test.deleted))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// A walk reads each message that was there when it began once, passes over what
// was deleted, and ends soon after its context.
func TestAWalkReadsAllAndObeysItsContext(t *testing.T) {
	t.Parallel()
	const all = 600
	b := testenv.NewServer(t)
	s, err := b.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, AllowDirect: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if _, err := b.JS.Publish(t.Context(), fmt.Sprintf("s.%d", i), make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	for _, seq := range []uint64{1, 2, 300, 450, all} {
		if err := s.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	read := map[string]bool{}
	w := &walk{nc: b.NC, js: b.JS, stream: "S", each: func(m *nats.Msg) error { read[m.Header.Get(jetstream.SubjectHeader)] = true; return nil }}
	if err := w.run(t.Context()); err != nil || len(read) != all-5 || w.read != all-5 {
		t.Errorf("got %d messages, %d counted, %v, want %d", len(read), w.read, err, all-5)
	}
	if l, err := w.damage(t.Context()); err != nil || l.unreadable != 0 || l.lost != nil {
		t.Errorf("got %+v, %v, want no damage", l, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w = &walk{nc: b.NC, js: b.JS, stream: "S", each: func(*nats.Msg) error { cancel(); return nil }}
	if err := w.run(ctx); !errors.Is(err, context.Canceled) || w.read > all/2 {
		t.Errorf("cancelled: got %v after %d messages", err, w.read)
	}
	w = &walk{nc: b.NC, js: b.JS, stream: "MISSING"}
	if err := w.run(t.Context()); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("no such stream: got %v", err)
	}
}

func TestWhatTheLossOfAStreamMeans(t *testing.T) {
	for stream, want := range map[string]string{
		streams.Bucket(streams.BucketEndpoints): "endpoints, keys or other settings are gone",
		streams.Bucket(streams.BucketInstances): "nothing else is lost",
		streams.Bucket(streams.BucketWorkers):   "nothing else is lost",
		streams.Jobs("ep"):                      "jobs that waited there are lost",
		"OTHER":                                 "not Flightline's",
	} {
		if got := MeaningOfLoss(stream); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q in it", stream, got, want)
		}
	}
}
