package streams_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/streams"
)

// F15: what is written to a stream stays in memory for ten seconds, if the block is read
// while it is written, as it is for the check of a subject's last sequence. Not parallel,
// since it measures the memory of the process.
func TestF15WhatIsReadWhileItIsWrittenStaysInMemory(t *testing.T) {
	const count, size = 64, 512 << 10
	body := strings.Repeat("x", size)
	for checks, stays := range map[bool]bool{false: false, true: true} {
		b := start(t)
		before := testenv.MemoryInUse()
		subject := streams.PayloadSubject(0, b.e.ID, "job", 1, 0, streams.In, "token")
		var last uint64
		for range count {
			m := message(subject, body)
			if checks {
				m = after(last, subject, body)
			}
			last = publish(t.Context(), t, b.JS, m)
		}
		if left := testenv.MemoryInUse() - before; left > count*size/2 != stays {
			t.Errorf("with the check %t, %d MB of %d are in memory; if it is little with both, bus.Append may go", checks, left>>20, count*size>>20)
		}
	}
}

// F18: each subject that has a message takes memory. Not parallel, as F15.
func TestF18EachSubjectTakesMemory(t *testing.T) {
	const count, least = 20_000, 80 // bytes for each
	took := map[bool]int{}
	for _, same := range []bool{true, false} {
		b := start(t)
		before := testenv.MemoryInUse()
		for range count {
			id := job.ID("one")
			if !same {
				id = queue.NewID(job.Async)
			}
			if _, err := b.JS.PublishAsync(streams.DeliverySubject(b.e.ID, id, 1), []byte("x"), jetstream.WithStallWait(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		<-b.JS.PublishAsyncComplete()
		took[same] = testenv.MemoryInUse() - before
	}
	if got := took[false] - took[true]; got < count*least {
		t.Errorf("%d subjects take %d bytes more than one, want at least %d each; if they do not, --deliveries-max-bytes may be larger", count, got, least)
	}
}
