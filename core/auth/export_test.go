package auth

// SetNonce makes the mechanism use a known nonce.
func (m *SCRAM) SetNonce(nonce string) { m.nonce = func() string { return nonce } }

// SetRawPassword makes the mechanism use passwords as they are, as the RFCs' examples do.
func (m *SCRAM) SetRawPassword() {
	m.prepare = func(u User) (string, error) { return u.Password, nil }
}

// Derived counts how often keys were derived from a password.
func (m *SCRAM) Derived() int {
	m.keys.mu.Lock()
	defer m.keys.mu.Unlock()
	return m.keys.derived
}

// Keys counts the keys that are cached.
func (m *SCRAM) Keys() int {
	m.keys.mu.Lock()
	defer m.keys.mu.Unlock()
	return len(m.keys.entries)
}

// Digest is the password of SCRAM-SHA-1.
func Digest(name, password string) string {
	d, _ := digest(User{Name: name, Password: password})
	return d
}
