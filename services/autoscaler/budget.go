package autoscaler

import (
	"context"
	"fmt"
	"time"

	"flightline/shared/endpoint"
	"flightline/shared/job"
)

// maxBudgetPages is how many pages are read at most to count the failures of a budget: a job
// has three events, and more if it is tried again.
const maxBudgetPages = 60

// budgetSpent says why the endpoint is to be paused, "" if it is not.
func budgetSpent(e endpoint.Endpoint, f sameFailure) string {
	if e.FailureBudget == 0 || f.jobs < e.FailureBudget {
		return ""
	}
	return bounded(fmt.Sprintf("its failure budget is used up, the last %s failed on %s for one cause: %s", counted(f.jobs, "job"), counted(f.workers, "worker"), f.cause))
}

// counted is a number with its noun, "1 job" or "2 jobs".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// pauseText says that an endpoint is paused, and why if it paused itself.
func pauseText(e endpoint.Endpoint) string {
	if e.PauseReason == "" {
		return "the endpoint is paused"
	}
	return "the endpoint is paused: " + e.PauseReason
}

// spendBudget pauses the endpoint if its failure budget is used up, and returns it as it
// is then. The count begins at the end of the last pause, or at the last change of the
// budget. The log decides and the record is written once: a leader that crashes in
// between leaves nothing to the next that it would not find again.
func (l *leader) spendBudget(ctx context.Context, now time.Time, e endpoint.Endpoint, m *endpointState) (endpoint.Endpoint, error) {
	switch {
	case e.Paused(now):
		return l.applyBudgetPause(ctx, e, m)
	case e.FailureBudget == 0 || now.Sub(m.budgetRead) < sameFailureInterval:
		return e, nil
	}
	m.budgetRead = now
	f, err := l.budgetUsed(ctx, e)
	if err != nil {
		l.log.DebugContext(ctx, "ends of jobs not read", "endpoint", e.ID, "err", err)
		return e, nil
	}
	reason := budgetSpent(e, f)
	if reason == "" {
		return e, nil
	}
	changed, written, err := l.updateEndpoint(ctx, e, func(x *endpoint.Endpoint) (same bool) {
		if !x.PausedUntil.Equal(e.PausedUntil) || x.FailureBudget == 0 || x.FailureBudget > f.jobs {
			return false
		}
		x.PausedUntil, x.PauseReason = now.Add(endpoint.MaxPause).UTC().Truncate(time.Millisecond), reason
		return true
	})
	if err != nil || !written {
		return e, err
	}
	l.log.WarnContext(ctx, "endpoint paused", "endpoint", e.ID, "reason", reason)
	return l.applyBudgetPause(ctx, changed, m)
}

// budgetUsed counts the last jobs that failed for one cause since the endpoint was made and
// its last pause ended or its budget was changed, up to its budget.
func (l *leader) budgetUsed(ctx context.Context, e endpoint.Endpoint) (sameFailure, error) {
	return l.failuresInRow(ctx, e.ID, job.Later(e.Created, e.PausedUntil), e.FailureBudget, maxBudgetPages)
}

// applyBudgetPause applies a pause by the budget to the queue, once in each term: who
// wrote the record may have crashed before the queue knew.
func (l *leader) applyBudgetPause(ctx context.Context, e endpoint.Endpoint, m *endpointState) (endpoint.Endpoint, error) {
	if e.PauseReason == "" || m.applied.Equal(e.PausedUntil) {
		return e, nil
	}
	now, err := l.registry.Endpoints.ApplyPause(ctx, e, l.queue.ApplyPause)
	if err != nil {
		return e, fmt.Errorf("apply the pause to the queue: %w", err)
	}
	m.applied = now.PausedUntil
	return now, nil
}
