package operate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/storage"
	"flightline/streams"
)

// stores looks for streams that refuse writes since one failed.
func (x *exam) stores(ctx context.Context, there map[string]*jetstream.StreamInfo) {
	asked, failures := 0, 0
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if _, ours := streams.PartOf(name); !ours {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, within)
		failed, err := storage.Check(asking, x.nc, name)
		cancel()
		if err != nil {
			x.add("stores", Warn, err.Error(), "let this user ask on "+streams.StreamPurge(name))
			return
		}
		asked++
		if failed != nil {
			failures++
			x.add("store of "+name, Fail, "it refuses all writes since one failed: "+failed.Reason,
				"see that the disk of NATS takes writes, then restart NATS; flightline dev restarts its own by itself")
		}
	}
	if failures == 0 {
		x.add("stores", OK, fmt.Sprintf("none of %d streams and buckets refuses writes", asked), "")
	}
}
