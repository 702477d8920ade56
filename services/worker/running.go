package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	sdk "flightline/shared/worker"
)

// maxNamed is how many running jobs are named; the rest is counted.
const maxNamed = 5

// running are the ids of the jobs whose handlers run.
type running struct {
	mu  sync.Mutex
	ids []string
}

// track is handler, noted while it runs.
func (r *running) track(handler sdk.Handler) sdk.Handler {
	return func(ctx context.Context, j *sdk.Job) (any, error) {
		id := j.ID
		r.mu.Lock()
		r.ids = append(r.ids, id)
		r.mu.Unlock()
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			i := slices.Index(r.ids, id)
			r.ids = slices.Delete(r.ids, i, i+1)
		}()
		return handler(ctx, j)
	}
}

// String is such as "2 running jobs: a, b", "" if none runs.
func (r *running) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	named := strings.Join(r.ids[:min(len(r.ids), maxNamed)], ", ")
	switch n := len(r.ids); {
	case n == 0:
		return ""
	case n == 1:
		return "1 running job: " + named
	case n <= maxNamed:
		return fmt.Sprintf("%d running jobs: %s", n, named)
	default:
		return fmt.Sprintf("%d running jobs: %s and %d more", n, named, n-maxNamed)
	}
}
