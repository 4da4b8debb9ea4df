package server

// line lists messages in an order. Its links are in the messages, so that a call allocates nothing
// for it. The zero value is empty.
type line struct {
	first, last *reading
	length      int
}

// append adds a message, which is in no line, as the last one.
func (l *line) append(r *reading) {
	r.watched, r.ahead, r.after = true, l.last, nil
	if l.last == nil {
		l.first = r
	} else {
		l.last.after = r
	}
	l.last = r
	l.length++
}

// remove removes a message that is in the line.
func (l *line) remove(r *reading) {
	if r.ahead == nil {
		l.first = r.after
	} else {
		r.ahead.after = r.after
	}
	if r.after == nil {
		l.last = r.ahead
	} else {
		r.after.ahead = r.ahead
	}
	r.watched, r.ahead, r.after = false, nil, nil
	l.length--
}
