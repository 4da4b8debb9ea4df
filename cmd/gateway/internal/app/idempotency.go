package app

import (
	"log/slog"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/service/idempotency"
	"github.com/mooringdb/mooring/service/seal"
)

func newIdempotency(
	cfg *config.Config, c *client.Client, log *slog.Logger,
) (*idempotency.Keys, error) {
	schedule := cfg.Idempotency
	if schedule.Len() == 0 {
		log.Warn("no idempotency key is configured: calls with an Idempotency-Key that are "+
			"repeated after a restart, or at another replica, are done again",
			"option", "idempotency.key")
		var err error
		if schedule, err = idempotency.NewSchedule(seal.RandomKey()); err != nil {
			return nil, err
		}
	}
	return idempotency.New(c, schedule), nil
}

// changeIdempotency replaces the idempotency key, and logs what clients see of that.
func changeIdempotency(k *idempotency.Keys, s idempotency.Schedule, log *slog.Logger) error {
	late, err := k.Replace(s)
	if err != nil {
		return &config.Error{Option: "idempotency.key", Problem: err.Error()}
	}
	if late > 0 {
		log.Warn("the change of the idempotency key was read late: calls with an "+
			"Idempotency-Key that were made here meanwhile may be done again", "late", late)
	}
	if from, until, ok := s.Refusal(time.Now()); ok {
		log.Warn("the idempotency key changes: calls with an Idempotency-Key are refused",
			"from", from, "until", until)
	}
	return nil
}
