package control

import (
	"strconv"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/registry"
	"flightline/shared/web"
)

// standardDecisions and maxDecisions bound the history of scaling.
const standardDecisions, maxDecisions = 20, 100

// decisionView is a decision of the autoscaler.
type decisionView struct {
	At           string `json:"at"`
	Wanted       int    `json:"wanted"`
	Current      int    `json:"current"`
	Starting     int    `json:"starting"`
	Idle         int    `json:"idle"`
	Running      int    `json:"running"`
	Unhealthy    int    `json:"unhealthy"`
	Draining     int    `json:"draining"`
	Queued       int    `json:"queued"`
	QueuedLow    int    `json:"queuedLowPriority"`
	InProgress   int    `json:"inProgress"`
	OldestWaitMs int64  `json:"oldestWaitMs"`
	Reason       string `json:"reason"`
	Text         string `json:"text"`
	Hold         bool   `json:"hold"`
	ScalerType   string `json:"scalerType"`
	ScalerValue  int    `json:"scalerValue"`
	WorkersMin   int    `json:"workersMin"`
	WorkersMax   int    `json:"workersMax"`
}

func decisionViewOf(d registry.Decision) decisionView {
	return decisionView{
		At: web.Stamp(d.At), Wanted: d.Wanted, Current: d.Current, Starting: d.Starting, Idle: d.Idle, Running: d.Running,
		Unhealthy: d.Unhealthy, Draining: d.Draining, Queued: d.Queued, QueuedLow: d.QueuedLow, InProgress: d.InProgress,
		OldestWaitMs: d.OldestWait.Milliseconds(), Reason: d.Reason, Text: d.Text, Hold: d.Hold,
		ScalerType: d.ScalerType, ScalerValue: d.ScalerValue, WorkersMin: d.WorkersMin, WorkersMax: d.WorkersMax,
	}
}

// listScaling lists what the autoscaler decided about the endpoint, the newest first.
func (s *Service) listScaling(c *fiber.Ctx) error {
	ctx, cancel := web.Prompt(c)
	defer cancel()
	e, err := s.registry.Endpoints.Get(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	most := standardDecisions
	if text := c.Query("limit"); text != "" {
		if most, err = strconv.Atoi(text); err != nil || most < 1 || most > maxDecisions {
			return web.Errorf(web.InvalidRequest, "limit must be between 1 and %d", maxDecisions)
		}
	}
	decisions, err := s.registry.Scaling.History(ctx, e.ID, most)
	if err != nil {
		return err
	}
	views := make([]decisionView, 0, len(decisions))
	for _, d := range decisions {
		if !d.At.Before(e.Created) { // not those about another of the same id
			views = append(views, decisionViewOf(d))
		}
	}
	return c.JSON(views)
}
