// Package streams is the map of the bus: every stream, subject and bucket of
// Flightline is spelled here and nowhere else. It is data, with what makes it
// true on a server: apply.go and ensure.go make streams and consumers exist,
// recover.go makes a lost queue again, pause.go stops a queue's consumers, and
// check.go compares a server with the data.
//
// Names and settings of streams, buckets and consumers are in config.go, subjects in
// subjects.go, what each NATS user may do in permissions.go, what a backup copies and in
// which order in snapshot.go (BackupOrder), what marks half a restore in restoring.go, the
// version of all this in schema.go, and what makes a nats-server's configuration in server_config.go.
//
//	stream or bucket   subjects                                      written by            read by              kept
//	JOBS_<endpoint>    jobs.<endpoint>.<class>.<job>                 submit, retry         workers              until done; ttl; at most 7 d + 1 h
//	KV_records_<p>     $KV.records_<p>.r.<endpoint>.<job>.<attempt>  queue.move            all                  rest of the ttl + 1 h
//	                   $KV.records_<p>.due.<endpoint>.<job>.<attempt> the server's schedule queue.Deadlines     300 s
//	OUTPUT_<p>         output.<p>.<endpoint>.<job>.<attempt>.<run>   the run's worker      stream readers       rest of the ttl + 1 h
//	PAYLOADS_<p>       payloads.<p>.<endpoint>.<job>.….<token>       submit, workers       workers, readers     rest of the ttl + 1 h
//	                   kept.<p>.<endpoint>.<job>.….<token>           recorder              webhook              7 d + 1 h
//	LOGS_<p>           logs.<p>.<endpoint>.<worker>                  autoscaler, workers   logs                 3 d, 256 MiB (settable)
//	EVENTS             events.<endpoint>.<kind or ->.…               recorder              requests, subscribers 7 d, 4 GiB (settable)
//	WEBHOOKS           webhooks.<endpoint>.<job>.<attempt>           recorder              webhook              until delivered; 7 d
//	SCALING            scaling.<endpoint>                            autoscaler            explain, scale       7 d, 1000 each
//	UNDELIVERED        undelivered.<endpoint>.<job>.<attempt>        webhook               webhook, control     until delivered; 7 d, 4 GiB (settable)
//	DELIVERIES         deliveries.<endpoint>.<job>.<attempt>         webhook               webhook, control     7 d, 256 MiB (settable)
//	destinations       KV                                            webhook, control      webhook, control     until resumed; 7 d unless paused
//	STATS              stats.<endpoint>.<kind>.…<start>              recorder              stats, requests      7 d by minute; 90 d by hour
//	counts, positions  KV                                            recorder              health, recorder     until deleted
//	leaders            KV                                            the active instance   its standbys         12 s after the last
//	idempotency        KV                                            submit                submit               24 h
//	cursors            $KV.cursors.<endpoint>.<job>                  /stream               /stream              rest of the ttl + 1 h
//	endpoints          KV                                            control, autoscaler   all                  until deleted
//	worker_endpoints   KV                                            control, autoscaler   workers              until deleted
//	keys               KV                                            control               control, api, gateway until deleted
//	templates, volumes KV                                            control               control, autoscaler  until deleted
//	pods               KV                                            control, autoscaler   control, autoscaler  a day after the end; 7 d after a renewal
//	worker_pods        KV                                            workers, gateway,     control, autoscaler, the same
//	                                                                 control, autoscaler   workers
//	sessions           KV                                            console               console              12 h
//	actions            KV                                            console               console              24 h
//	tokens             KV                                            control, gateway,     control, api,         until revoked
//	                                                                 autoscaler            gateway, autoscaler
//	workers, instances KV                                            heartbeats            health, control      15 s after the last
//	machines           KV                                            autoscaler            autoscaler, control  15 s after the last
//	gpus               KV                                            autoscaler, control   autoscaler, control  until the pod is gone; a quarantine stays
//	RESTORING          restoring; no messages                        restore               Apply, doctor        until the restore's end
//
// Core subjects, never stored: moved.<endpoint>.<job>.<attempt> repeats the
// headers of every record write (for waiters); emitted.<p>.<endpoint>.<job>.…
// those of every chunk (for stream readers); logged.<p>.<endpoint>.<worker> those of
// every batch of lines (for readers of logs); nudge.<endpoint>.<job> makes a
// holder read its record again; holder.<endpoint>.<job> is the answer of a holder
// that is asked whether it lives; durable.<stream> asks the process of a
// server without a cluster to fsync the stream.
//
// <p> is the endpoint's partition. <class> is "n" (normal) or "l" (low priority). The
// recorder removes a finished job's messages when its retention is over, which is
// mostly earlier than "rest of the ttl + 1 h". The size of LOGS is its MaxBytes, which NATS
// reserves; the recorder (EVENTS) and the webhook role (DELIVERIES, UNDELIVERED) hold the
// other sizes with bus.KeepTrimmed, which removes the oldest messages.
package streams
