package autoscaler

import (
	"slices"
	"time"
)

// lostJob can be taken over once the lease of the endpoint is over.
type lostJob struct {
	since time.Time
	low   bool
}

// kill ends a busy worker, or does nothing.
func (d *day) kill() {
	for i, w := range d.members {
		if w.state == busy {
			d.lost = append(d.lost, lostJob{d.now, d.lowly[w.id]})
			d.members = slices.Delete(d.members, i, i+1)
			return
		}
	}
}

// lostNormal is how many jobs that were lost are to start a worker.
func (d *day) lostNormal() (n int) {
	for _, j := range d.lost {
		if !j.low {
			n++
		}
	}
	return n
}

// orphans are what the autoscaler sees of the jobs that were lost.
func (d *day) orphans() (o orphans) {
	for _, j := range d.lost {
		if unnamed := d.now.Sub(j.since); !j.low && unnamed >= unnamedTimeout {
			o.count++
			o.waited = max(o.waited, unnamed-d.e.Lease)
		}
	}
	return o
}
