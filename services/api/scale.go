package api

import "github.com/gofiber/fiber/v2"

// scaleView answers scale: the numbers that whoever starts workers goes by.
// Wanted is how many there should be.
type scaleView struct {
	Known      bool   `json:"known"`
	Wanted     int    `json:"wanted"`
	Current    int    `json:"current"`
	Starting   int    `json:"starting"`
	Idle       int    `json:"idle"`
	Running    int    `json:"running"`
	Unhealthy  int    `json:"unhealthy"`
	Queued     int    `json:"queued"`
	QueuedLow  int    `json:"queuedLowPriority"`
	InProgress int    `json:"inProgress"`
	WorkersMin int    `json:"workersMin"`
	WorkersMax int    `json:"workersMax"`
	Reason     string `json:"reason"`
	Text       string `json:"text"`
	// Hold: a number was unknown, and Wanted is what it was before.
	Hold bool `json:"hold"`
	// At is when it was decided; it holds until another decision.
	At string `json:"at"`
}

// unknownView is the answer while nobody decides. It has no number, so that a
// scaler that reads wanted keeps what there is.
type unknownView struct {
	Known bool   `json:"known"`
	Text  string `json:"text"`
}

// scale tells how many workers the autoscaler wants.
func (s *Service) scale(c *fiber.Ctx) error {
	ctx, cancel := prompt(c)
	defer cancel()
	e, err := s.registry.Endpoints.Get(ctx, c.Params("endpoint"))
	if err != nil {
		return err
	}
	d, alive, err := s.decided(ctx, e)
	switch {
	case err != nil:
		return err
	case !alive:
		return c.JSON(unknownView{Text: "no autoscaler is active"})
	case d == nil:
		return c.JSON(unknownView{Text: "the autoscaler has not decided about this endpoint yet"})
	}
	return c.JSON(scaleView{
		Known: true, Wanted: d.Wanted, Current: d.Current, Starting: d.Starting, Idle: d.Idle, Running: d.Running, Unhealthy: d.Unhealthy,
		Queued: d.Queued, QueuedLow: d.QueuedLow, InProgress: d.InProgress, WorkersMin: d.WorkersMin, WorkersMax: d.WorkersMax,
		Reason: d.Reason, Text: d.Text, Hold: d.Hold, At: stamp(d.At),
	})
}
