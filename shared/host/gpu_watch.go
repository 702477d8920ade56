package host

import (
	"context"
	"log/slog"
	"time"

	"flightline/shared/pod"
)

// GPUWatch reads the machine's accelerators, and notes the XID errors of NVIDIA's cards
// while Run runs, where NVIDIA's library is built in.
type GPUWatch struct{ xids xidRecord }

// GPUs is the function GPUs with the errors that were noted.
func (w *GPUWatch) GPUs(ctx context.Context, log *slog.Logger) []pod.GPU {
	found, _ := GPUs(ctx, log)
	return w.xids.apply(found, time.Now())
}

// Run notes XID errors until ctx ends, and calls changed when one makes a card unhealthy.
func (w *GPUWatch) Run(ctx context.Context, log *slog.Logger, changed func()) {
	watchXIDs(ctx, log, func(uuid string, code uint64) {
		ofCard := w.xids.note(uuid, code, time.Now())
		log.WarnContext(ctx, "XID error of a GPU", "gpu", uuid, "xid", code, "of_card", ofCard)
		if ofCard {
			changed()
		}
	})
}
