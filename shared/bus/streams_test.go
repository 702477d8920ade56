package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/testenv"
)

// The server gives pages by offsets: what is deleted between two pages moves all that
// follows. Page by page, the first stream of the second page would be left out.
func TestAListOfStreamsMissesNoneWhileOthersGo(t *testing.T) {
	t.Parallel()
	s := testenv.NewServer(t)
	const stay, gone = 1100, 20 // more than a page of names, or four of states
	create := func(ctx context.Context, name string) error {
		_, err := s.JS.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{"list." + name}, Storage: jetstream.MemoryStorage})
		return err
	}
	for i := range stay {
		testenv.Retry(t, func() error { return create(t.Context(), fmt.Sprintf("stay%04d", i)) })
	}
	testenv.Background(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			for i := range 2 * gone {
				name := fmt.Sprintf("go%02d", i%gone)
				err := create(ctx, name)
				if i >= gone {
					err = s.JS.DeleteStream(ctx, name)
				}
				if err != nil && ctx.Err() == nil && !testenv.IsLate(err) && !errors.Is(err, jetstream.ErrStreamNotFound) {
					return err
				}
			}
		}
		return nil
	})
	c := bus.Bind(s.NC)
	for range 20 {
		states, err := c.StreamStates(t.Context(), "list.*")
		if err != nil {
			t.Fatal(err)
		}
		names, err := c.StreamNames(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		infos, silent, err := bus.StreamInfos(t.Context(), s.NC, testenv.Timeout)
		if err != nil || len(silent) > 0 {
			t.Fatalf("got %v, %v, want answers for all", silent, err)
		}
		there := 0
		for _, name := range names {
			if strings.HasPrefix(name, "stay") {
				there++
			}
		}
		for i := range stay {
			name := fmt.Sprintf("stay%04d", i)
			if _, there := states[name]; !there {
				t.Fatalf("%s has no state", name)
			}
			if info := infos[name]; info == nil || info.Config.Name != name || info.Config.Subjects[0] != "list."+name {
				t.Fatalf("%s: got %+v", name, info)
			}
		}
		if there != stay {
			t.Fatalf("got %d names, want %d", there, stay)
		}
	}
}
