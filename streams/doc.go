// Package streams is the map of the bus: every stream, subject and bucket of
// Flightline is spelled here and nowhere else. It is data; the only behaviour
// is Apply, which makes the shared ones exist.
//
//	stream or bucket   subjects                                      written by            read by              kept
//	JOBS_<endpoint>    jobs.<endpoint>.<class>.<job>                 submit, retry         workers              until done; ttl; at most 7 d + 1 h
//	KV_records_<p>     $KV.records_<p>.r.<endpoint>.<job>.<attempt>  queue.move            all                  rest of the ttl + 1 h
//	                   $KV.records_<p>.due.<endpoint>.<job>.<attempt> the server's schedule queue.Deadlines     300 s
//	OUTPUT_<p>         output.<p>.<endpoint>.<job>.<attempt>.<run>   the run's worker      stream readers       rest of the ttl + 1 h
//	PAYLOADS_<p>       payloads.<p>.<endpoint>.<job>.….<token>       submit, workers       workers, readers     rest of the ttl + 1 h
//	                   kept.<p>.<endpoint>.<job>.….<token>           recorder              webhook              7 d + 1 h
//	EVENTS             events.<endpoint>.<kind>.<job>.<attempt>.<run> recorder              requests, subscribers 7 d (settable)
//	WEBHOOKS           webhooks.<endpoint>.<job>.<attempt>           recorder              webhook              until delivered; 7 d
//	UNDELIVERED        undelivered.<endpoint>.<job>.<attempt>        webhook               webhook, control     until delivered; 7 d
//	DELIVERIES         deliveries.<endpoint>.<job>.<attempt>         webhook               webhook, control     7 d
//	destinations       KV                                            webhook, control      webhook, control     until resumed; 7 d unless paused
//	counts, positions  KV                                            recorder              health, recorder     until deleted
//	leaders            KV                                            whoever is active     its standbys         12 s after the last
//	idempotency        KV                                            submit                submit               24 h
//	cursors            $KV.cursors.<endpoint>.<job>                  /stream               /stream              rest of the ttl + 1 h
//	endpoints, keys    KV                                            control               all                  until deleted
//	tokens             KV                                            control, gateway      gateway, control     until revoked
//	workers, instances KV                                            heartbeats            health, control      15 s after the last
//
// Core subjects, never stored: moved.<endpoint>.<job>.<attempt> repeats the
// headers of every record write (for waiters); emitted.<p>.<endpoint>.<job>.…
// those of every chunk (for stream readers); nudge.<endpoint>.<job> tells a
// holder to look at its record again; durable.<stream> asks the process of a
// server that is alone to fsync the stream (durable.? whether it has to be asked).
//
// <p> is the endpoint's partition. <class> is "n" or "l".
package streams
