package record_test

import (
	"bytes"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/record"
	"flightline/shared/testenv"
	"flightline/streams"
)

// newPayloads returns a client of a server with all streams, and the subject of a payload.
func newPayloads(t *testing.T) (*bus.Client, string) {
	t.Helper()
	s := testenv.NewServer(t)
	testenv.Retry(t, func() error { return streams.Apply(t.Context(), s.JS, streams.Config{}) })
	return bus.Bind(s.NC), "payloads.0.ep.job.1.0.in.token"
}

func TestAPartThatIsStoredTwiceIsReadOnce(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{
		"at once":               {0, 0, 1, 2},
		"after the next part":   {0, 1, 0, 2},
		"after the last part":   {0, 1, 2, 0},
		"each after the answer": {0, 0, 1, 1, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, subject := newPayloads(t)
			want := bytes.Repeat([]byte("abcdefg"), 2*record.PartSize/7+1000)
			ref, err := record.StorePayload(t.Context(), c, subject, want, time.Now().Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			storeAgain(t, c, subject, ref.Parts, order)
			got, err := record.LoadPayload(t.Context(), c, ref)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("got %d bytes and %v, want the %d of the payload", len(got), err, len(want))
			}
		})
	}
}

// storeAgain replaces the parts of a payload by the same, in this order.
func storeAgain(t *testing.T, c *bus.Client, subject string, count int, order []int) {
	t.Helper()
	stream := streams.Payloads(0)
	parts, err := c.BatchGet(t.Context(), stream, bus.Batch{Filter: subject, Most: count})
	if err != nil || len(parts) != count {
		t.Fatalf("got %d parts and %v, want %d", len(parts), err, count)
	}
	if err := c.Purge(t.Context(), stream, subject); err != nil {
		t.Fatal(err)
	}
	for _, i := range order {
		m := &nats.Msg{Subject: subject, Data: parts[i].Data, Header: nats.Header{}}
		if err := c.Append(t.Context(), stream, m, parts[i].Header.Get(bus.TokenHeader)); err != nil {
			t.Fatal(err)
		}
	}
}

// docs/design/jetstream.md#f15: before, the server read each part to check its sequence.
func TestStoredPayloadsLeaveTheMemory(t *testing.T) {
	const count, size, most = 24, 10 * record.PartSize, 96 << 20
	c, subject := newPayloads(t)
	data := make([]byte, size)
	for i := range count {
		if _, err := record.StorePayload(t.Context(), c, subject+strconv.Itoa(i), data, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if left := testenv.MemoryInUse(); left > most {
		t.Errorf("%d MB of payloads leave %d MB in memory, want %d at most", count*size>>20, left>>20, most>>20)
	}
}
