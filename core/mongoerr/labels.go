package mongoerr

import (
	"errors"
	"slices"
)

// LabeledError gives an error labels that the driver adds, beside those of Err.
type LabeledError struct {
	Err   error
	Added []string
}

func (e *LabeledError) Error() string { return e.Err.Error() }

// Unwrap returns the error that got the labels.
func (e *LabeledError) Unwrap() error { return e.Err }

// WithLabel returns err with a label, or err itself if it has that.
func WithLabel(err error, label string) error {
	if HasLabel(err, label) {
		return err
	}
	return &LabeledError{Err: err, Added: []string{label}}
}

// HasLabel reports whether err, or an error that it wraps, carries the label.
func HasLabel(err error, label string) bool {
	return slices.Contains(Labels(err), label)
}

// Labels returns the labels of the reply, or of the broken connection, that err stands for, and
// those that the driver has added.
func Labels(err error) []string {
	e, ok := errors.AsType[labeled](err)
	if !ok {
		return nil
	}
	all := e.labels()
	for _, label := range Labels(errors.Unwrap(e)) {
		if !slices.Contains(all, label) {
			all = append(slices.Clip(all), label)
		}
	}
	return all
}

// IsRetryableOverload reports whether a server that is overloaded has refused the command, and says
// that it may be sent again (Client Backpressure).
func IsRetryableOverload(err error) bool {
	labels := Labels(err)
	return slices.Contains(labels, LabelSystemOverloaded) &&
		slices.Contains(labels, LabelRetryable)
}

// labeled describes an error with labels of its own. Those that it wraps may have others.
type labeled interface {
	error
	labels() []string
}

func (e *LabeledError) labels() []string { return e.Added }

func (e *OverloadError) labels() []string {
	return []string{LabelSystemOverloaded, LabelRetryable}
}

func (e *CommandError) labels() []string { return e.Labels }

func (e *WriteException) labels() []string { return e.Labels }

func (e *WriteConcernError) labels() []string { return e.Labels }

func (e *NetworkError) labels() []string { return e.Labels }
