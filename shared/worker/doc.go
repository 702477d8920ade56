// Package worker is the SDK for workers in Go: a function that takes a job
// and returns its output, and Run, which brings it the jobs of one endpoint.
//
//	err := worker.Run(ctx, worker.Config{Endpoint: "upper", NATSURL: url},
//		func(ctx context.Context, j *worker.Job) (any, error) {
//			var in struct{ Text string }
//			if err := json.Unmarshal(j.Input, &in); err != nil {
//				return nil, err // the job is FAILED with this text
//			}
//			return strings.ToUpper(in.Text), nil
//		})
//
// # What a handler can rely on
//
// Its context ends when the result is no longer wanted: the job was cancelled,
// its execution timeout or its ttl is over, another worker has it, or this
// worker stops. context.Cause says which; see ErrCancelled and its
// neighbours. A handler that outstays its context changes nothing, its result
// is dropped, but it keeps its slot, and so the next job waiting, until it
// returns.
//
// While NATS is away the handler runs on, however long that takes. Its result
// is delivered when NATS is back. A handler runs again only after its worker
// was lost or gave the job back, so its effects should be idempotent.
//
// Uploads to the job's own bucket are in package worker/s3.
package worker
