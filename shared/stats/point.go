package stats

import "time"

// Point is what happened at an endpoint within a minute or an hour. The zero value
// is that nothing did. Points can be added up.
type Point struct {
	// Submitted counts the jobs that were submitted then, once they were picked up or
	// are over: what waits has no event yet.
	Submitted int64 `json:"submitted,omitempty"`
	// Completed, Failed, TimedOut and Cancelled count the attempts that ended then.
	Completed int64 `json:"completed,omitempty"`
	Failed    int64 `json:"failed,omitempty"`
	TimedOut  int64 `json:"timedOut,omitempty"`
	Cancelled int64 `json:"cancelled,omitempty"`
	// Retried counts pick-ups of an attempt after its first, and attempts after a job's
	// first, when they were queued.
	Retried int64 `json:"retried,omitempty"`
	// Lost counts the workers that were lost by the attempts that ended then.
	Lost int64 `json:"lost,omitempty"`
	// Delay is how long attempts had waited that were picked up then for the first time,
	// Execution how long the last run of attempts took that ended then.
	Delay     Histogram `json:"delay,omitzero"`
	Execution Histogram `json:"execution,omitzero"`
	// Workers is the largest number of living workers seen, BusyGPUSeconds the GPUs of
	// those that held a job, by the time. They are samples.
	Workers        int   `json:"workers,omitempty"`
	BusyGPUSeconds int64 `json:"busyGpuSeconds,omitempty"`
}

// Merge adds another point of the same endpoint. Workers is the larger of both.
func (p *Point) Merge(other Point) {
	p.Submitted += other.Submitted
	p.Completed += other.Completed
	p.Failed += other.Failed
	p.TimedOut += other.TimedOut
	p.Cancelled += other.Cancelled
	p.Retried += other.Retried
	p.Lost += other.Lost
	p.Delay.Merge(other.Delay)
	p.Execution.Merge(other.Execution)
	p.Workers = max(p.Workers, other.Workers)
	p.BusyGPUSeconds += other.BusyGPUSeconds
}

// Sample is how the workers of an endpoint stood at a time.
type Sample struct {
	Endpoint string
	// Workers is how many lived, BusyGPUs the GPUs of those that held a job.
	Workers, BusyGPUs int
}

// Add adds a sample that stands for a length of time.
func (p *Point) Add(s Sample, lasting time.Duration) {
	p.Workers = max(p.Workers, s.Workers)
	p.BusyGPUSeconds += int64(s.BusyGPUs) * int64(lasting/time.Second)
}
