import { useState } from 'preact/hooks';
import { refused, signIn } from './api';
import { Failure } from './parts';

/** SignIn asks for a credential. The field is no form of the browser's: nothing is stored. */
export function SignIn() {
  const [error, setError] = useState<unknown>(refused.value);
  const [busy, setBusy] = useState(false);
  const attempt = async (key: string | undefined): Promise<void> => {
    setBusy(true);
    try {
      await signIn(key);
    } catch (e) {
      setError(e);
      setBusy(false);
    }
  };
  return (
    <main id="main" class="sign-in" tabIndex={-1}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void attempt(String(new FormData(e.currentTarget).get('key')).trim());
        }}
      >
        <h1>Sign in to Mooring</h1>
        <label for="key">API key or token</label>
        <input
          id="key"
          name="key"
          type="password"
          autocomplete="off"
          required
          aria-describedby="kept"
          spellcheck={false}
        />
        <p id="kept" class="muted">
          It stays in the memory of this page. Reloading the page forgets it.
        </p>
        <p class="actions">
          <button type="submit" class="primary" disabled={busy}>
            Sign in
          </button>
          <button type="button" disabled={busy} onClick={() => void attempt(undefined)}>
            Use my client certificate
          </button>
        </p>
        {error !== undefined && <Failure error={error} what="The gateway did not let you in" />}
      </form>
    </main>
  );
}
