// Numbers as people read them.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

export const count = (number) => whole.format(number);

/** "1 token", "2 tokens". */
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? '' : 's'}`;

/** Microseconds in the unit that needs the fewest digits. */
export function duration(us) {
  if (!Number.isFinite(us)) return 'none';
  if (us < 1_000) return `${Math.round(us)} µs`;
  if (us < 100_000) return `${(us / 1e3).toFixed(1)} ms`;
  if (us < 1_000_000) return `${Math.round(us / 1e3)} ms`;
  if (us < 60_000_000) return `${(us / 1e6).toFixed(1)} s`;
  if (us < 3_600_000_000) return `${Math.floor(us / 60e6)} min ${Math.round((us % 60e6) / 1e6)} s`;
  return `${(us / 3_600e6).toFixed(1)} h`;
}

export function bytes(number) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${number >= 100 || unit === 0 ? Math.round(number) : number.toFixed(1)} ${units[unit]}`;
}

export const rate = (perSecond) => (perSecond >= 100 ? count(perSecond) : perSecond.toFixed(1));

export const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

/** How long ago a time of `Date.now()` was. */
export function ago(time) {
  const minutes = Math.round((Date.now() - time) / 60_000);
  if (minutes < 1) return 'now';
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 1_440) return `${Math.round(minutes / 60)} h`;
  return new Date(time).toLocaleDateString();
}
