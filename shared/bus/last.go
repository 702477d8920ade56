package bus

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
)

const (
	// lastSubjects is how many subjects one request may name, lastBytes how much
	// is answered at a time.
	lastSubjects, lastBytes = 512, 4 << 20
	// lastMost is how many messages the server gives at most.
	lastMost = 1024
)

// LastOf reads the last message on each of the subjects, in few requests to the
// stream's direct-get subject. A subject may have wildcards if few match it,
// and stands for all that do. The messages come without their data, in no
// particular order; what is on no message is left out. Any replica may answer,
// so the newest writes may be missing. It returns ErrNoAnswer when JetStream is
// away, and ctx.Err().
func LastOf(ctx context.Context, nc *nats.Conn, stream string, subjects []string) ([]*nats.Msg, error) {
	var found []*nats.Msg
	for len(subjects) > 0 {
		some := subjects[:min(lastSubjects, len(subjects))]
		subjects = subjects[len(some):]
		for from, more := uint64(1), true; more; {
			got, err := lastOf(ctx, nc, stream, some, from)
			if err != nil {
				return nil, err
			}
			found = append(found, got...)
			if more = len(got) > 0; more {
				from = Sequence(got[len(got)-1]) + 1
				more = got[len(got)-1].Header.Get("Nats-Num-Pending") != "0"
			}
		}
	}
	return found, nil
}

func lastOf(ctx context.Context, nc *nats.Conn, stream string, subjects []string, from uint64) ([]*nats.Msg, error) {
	request, err := json.Marshal(map[string]any{"multi_last": subjects, "seq": from, "max_bytes": lastBytes})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", stream, err)
	}
	got, err := readBatch(ctx, nc, stream, request, lastMost, stream)
	for _, m := range got {
		m.Data = nil
	}
	return got, err
}
