// Typeset, let each slide hold what is on it, then start. Everything comes from this folder.
window.MathJax = {
  options: { enableMenu: false },
  tex: { inlineMath: [["$", "$"], ["\\(", "\\)"]], displayMath: [["$$", "$$"], ["\\[", "\\]"]], processEscapes: true },
  chtml: { matchFontHeight: false },
  startup: { typeset: false },
};

const loaded = (source) => new Promise((resolve, reject) => {
  const script = Object.assign(document.createElement("script"), { src: source, onload: resolve, onerror: reject });
  document.head.append(script);
});

const holds = (one) => one.scrollHeight <= one.clientHeight && one.scrollWidth <= one.clientWidth;

// In steps of a twentieth, to no less than 60%.
function fit(slide) {
  for (const equation of slide.querySelectorAll("mjx-container[display]")) {
    const share = equation.clientWidth / equation.scrollWidth;
    if (share < 1) equation.style.fontSize = `${100 * share}%`;
  }
  for (let size = 1; size > 0.6 && !holds(slide); size -= 0.05) slide.style.fontSize = `${size - 0.05}em`;
}

(async () => {
  await loaded("../_static/mathjax/tex-chtml.js");
  await MathJax.startup.promise;
  const slides = [...document.querySelectorAll(".slides > section > section")];
  // Seen while it is measured; reveal.js shows one slide at a time.
  for (const section of [...document.querySelectorAll(".slides section")]) section.style.display = "block";
  await MathJax.typesetPromise();
  await Promise.all([...document.images].map((image) => image.decode()));
  await document.fonts.ready;
  slides.forEach(fit);
  for (const section of [...document.querySelectorAll(".slides section")]) section.style.display = "";
  await Reveal.initialize({
    width: 1280, height: 720, margin: 0, center: false, hash: true, transition: "none", slideNumber: "c/t",
    scrollActivationWidth: null,
  });
  document.documentElement.dataset.ready = "yes";
})();
