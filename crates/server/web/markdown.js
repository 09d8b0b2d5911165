// What models write, as elements: Markdown without HTML of its own, sanitised once more, with coloured code.
//
// Answers grow. Only the top-level blocks that are new or have changed are made anew, so that text that stands stays where it is,
// selected or not, and the work does not grow with the answer.

import createDOMPurify from './vendor/dompurify.js';
import highlighter from './vendor/highlight.js';
import MarkdownIt from './vendor/markdown-it.js';

const markdown = new MarkdownIt({ html: false, linkify: true, breaks: false, highlight });

/** Code of more characters stays plain: colouring it takes longer than reading it. */
const MOST_COLOURED = 20_000;

function highlight(code, language) {
  if (code.length > MOST_COLOURED || !highlighter.getLanguage(language)) return '';
  return highlighter.highlight(code, { language, ignoreIllegals: true }).value;
}

// Nothing is fetched from elsewhere: a picture is a link to it.
markdown.renderer.rules.image = (tokens, index) => {
  const token = tokens[index];
  const { escapeHtml } = markdown.utils;
  return `<a href="${escapeHtml(token.attrGet('src') ?? '')}">🖼 ${escapeHtml(token.content || 'picture')}</a>`;
};

// Alignment as a class: the page's policy allows no styles in attributes.
for (const cell of ['th_open', 'td_open']) {
  markdown.renderer.rules[cell] = (tokens, index, options, env, self) => {
    const style = tokens[index].attrGet('style');
    tokens[index].attrs = style ? [['class', style.replace('text-align:', 'to-')]] : null;
    return self.renderToken(tokens, index, options);
  };
}

const ALLOWED = {
  ALLOWED_TAGS: ['p', 'br', 'hr', 'strong', 'em', 's', 'code', 'pre', 'span', 'a', 'ul', 'ol', 'li', 'blockquote',
    'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'table', 'thead', 'tbody', 'tr', 'th', 'td'],
  ALLOWED_ATTR: ['href', 'title', 'class', 'start'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  RETURN_DOM_FRAGMENT: true,
};

const purifier = createDOMPurify(window);

purifier.addHook('afterSanitizeAttributes', (node) => {
  if (node.tagName === 'A') {
    node.setAttribute('target', '_blank');
    node.setAttribute('rel', 'noopener noreferrer nofollow');
  }
});

/** All that a token's HTML is made of: lines alone are not enough, since what follows a list may space its items out. */
const essence = ({ type, tag, hidden, info, content, attrs }) => [type, tag, hidden, info, content, attrs];

/** The top-level blocks of a text: what each is made of, and its HTML when it is asked for. */
function blocksOf(text) {
  const env = {};
  const tokens = markdown.parse(text, env);
  // A definition at the end, and each letter of its address, may change a link at the beginning.
  const references = env.references ?? {};
  const blocks = [];
  for (let start = 0; start < tokens.length;) {
    let end = start;
    for (let depth = 0; ;) {
      depth += tokens[end].nesting;
      end += 1;
      if (depth <= 0 || end === tokens.length) break;
    }
    const part = tokens.slice(start, end);
    blocks.push({
      source: JSON.stringify([references, part.map(essence)]),
      html: () => markdown.renderer.render(part, markdown.options, env),
    });
    start = end;
  }
  return blocks;
}

/** Shows `text` in `element`, changing what has changed. */
export function show(element, text) {
  const shown = element.blocks ?? [];
  const blocks = blocksOf(text);
  let same = 0;
  while (same < blocks.length && shown[same]?.source === blocks[same].source) same += 1;
  for (const { nodes } of shown.splice(same)) nodes.forEach((node) => node.remove());
  for (const { source, html } of blocks.slice(same)) {
    const fragment = purifier.sanitize(html(), ALLOWED);
    for (const pre of fragment.querySelectorAll('pre')) finishCode(pre);
    const nodes = [...fragment.childNodes];
    element.append(fragment);
    shown.push({ source, nodes });
  }
  element.blocks = shown;
}

/** Code can be scrolled with the keyboard, and says so. */
function finishCode(pre) {
  pre.tabIndex = 0;
  pre.setAttribute('role', 'group');
  const language = /language-([\w+#-]+)/.exec(pre.firstElementChild?.className ?? '')?.[1];
  pre.setAttribute('aria-label', language ? `Code, ${language}` : 'Code');
  if (language) pre.dataset.language = language;
}
