package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/hibiken/asynq"

	"flightline/services/cli"
	"flightline/shared/worker"
)

// The roles that this program has in other processes of itself.
const (
	roleWorker = "worker"
	roleAsynq  = "asynq"
	roleEcho   = "echo"
)

var roles = map[string]func(context.Context, []string) error{
	roleWorker: serveWorker, roleAsynq: serveAsynq, roleEcho: serveEcho,
}

// serveWorker is a worker on the Go SDK: DATA of the dev, ADDRESS of its count. Its
// handler returns the input.
func serveWorker(ctx context.Context, args []string) error {
	running, err := cli.FindRunning(args[0])
	if err != nil {
		return err
	}
	var completed atomic.Int64
	app := newApp()
	countAt(app, &completed)
	failed := make(chan error, 1)
	config := worker.Config{
		Endpoint: busyEndpoint, NATSURL: running.NATSURL, User: running.NATSUser, Password: running.NATSPassword,
		Concurrency: slots, OnReady: func() { go func() { failed <- app.Listen(args[1]) }() },
	}
	err = worker.Run(ctx, config, func(_ context.Context, j *worker.Job) (any, error) {
		completed.Add(1)
		return j.Input, nil
	})
	return errors.Join(err, app.Shutdown(), <-failed)
}

func newApp() *fiber.App {
	return fiber.New(fiber.Config{DisableStartupMessage: true})
}

func countAt(app *fiber.App, completed *atomic.Int64) {
	app.Get("/stats", func(c *fiber.Ctx) error { return c.JSON(fiber.Map{"completed": completed.Load()}) })
}

func checkKey(c *fiber.Ctx) error {
	if c.Get(fiber.HeaderAuthorization) != "Bearer "+key {
		return c.SendStatus(fiber.StatusUnauthorized)
	}
	return c.Next()
}

// serveUntil serves at an address until ctx ends.
func serveUntil(ctx context.Context, app *fiber.App, address string) error {
	stop := context.AfterFunc(ctx, func() { _ = app.Shutdown() })
	defer stop()
	return app.Listen(address)
}

// serveEcho is Fiber alone: ADDRESS. It checks the key and the JSON, and returns the body.
func serveEcho(ctx context.Context, args []string) error {
	app := newApp()
	app.Post("/run", checkKey, func(c *fiber.Ctx) error {
		if !json.Valid(c.Body()) {
			return c.SendStatus(fiber.StatusBadRequest)
		}
		c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
		return c.Send(c.Body())
	})
	return serveUntil(ctx, app, args[0])
}

// serveAsynq is the job API on asynq: ADDRESS, address of REDIS. Front and worker share the
// process. asynq looks for jobs once a second by default; here it does every 5 ms.
func serveAsynq(ctx context.Context, args []string) error {
	const checkInterval = 5 * time.Millisecond
	redis := asynq.RedisClientOpt{Addr: args[1], PoolSize: slots}
	var completed atomic.Int64
	server := asynq.NewServer(redis, asynq.Config{Concurrency: slots, TaskCheckInterval: checkInterval, LogLevel: asynq.WarnLevel})
	mux := asynq.NewServeMux()
	mux.HandleFunc("job", func(_ context.Context, task *asynq.Task) error {
		if _, err := task.ResultWriter().Write(task.Payload()); err != nil {
			return err
		}
		completed.Add(1)
		return nil
	})
	if err := server.Start(mux); err != nil {
		return err
	}
	defer server.Shutdown()
	app := newApp()
	countAt(app, &completed)
	serveTasks(app, asynq.NewClient(redis), asynq.NewInspector(redis))
	return serveUntil(ctx, app, args[0])
}

func serveTasks(app *fiber.App, client *asynq.Client, inspector *asynq.Inspector) {
	const retention, queue = 30 * time.Minute, "default"
	app.Post("/run", checkKey, func(c *fiber.Ctx) error {
		var request struct {
			Input json.RawMessage `json:"input"`
		}
		if err := json.Unmarshal(c.Body(), &request); err != nil || len(request.Input) == 0 {
			return c.SendStatus(fiber.StatusBadRequest)
		}
		info, err := client.EnqueueContext(c.Context(), asynq.NewTask("job", request.Input), asynq.Retention(retention))
		if err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
		return c.JSON(fiber.Map{"id": info.ID, "status": "IN_QUEUE"})
	})
	app.Get("/status/:id", checkKey, func(c *fiber.Ctx) error {
		info, err := inspector.GetTaskInfo(queue, c.Params("id"))
		switch {
		case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
			return c.SendStatus(fiber.StatusNotFound)
		case err != nil:
			return err
		case info.State == asynq.TaskStateCompleted:
			return c.JSON(fiber.Map{"id": info.ID, "status": "COMPLETED", "output": json.RawMessage(info.Result)})
		}
		return c.JSON(fiber.Map{"id": info.ID, "status": "IN_PROGRESS"})
	})
}
