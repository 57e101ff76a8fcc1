/** The colours that the viewer has chosen: those of the system, light or dark. */

const PLACE = 'console.theme';
export const THEMES = ['system', 'light', 'dark'] as const;
export type Theme = (typeof THEMES)[number];

export const currentTheme = (): Theme => THEMES.find((theme) => theme === localStorage.getItem(PLACE)) ?? 'system';

export function applyTheme(theme = currentTheme()): void {
  localStorage.setItem(PLACE, theme);
  document.documentElement.dataset['theme'] = theme;
}
